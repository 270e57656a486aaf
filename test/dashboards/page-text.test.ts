/** The texts of the operator's page, without a browser. */
import { parseHTML } from 'linkedom';
import { expect, onTestFinished, test, vi } from 'vitest';

test('every element, and every refusal, shows deceptive characters as escapes', async () => {
  vi.stubGlobal('document', parseHTML('<html></html>').document);
  onTestFinished(() => void vi.unstubAllGlobals());
  const load = (file: string) => import(new URL(`../../dashboards/page/${file}`, import.meta.url).href);
  const [{ editableJson, element }, { ApiError }] = [await load('dom.js'), await load('api.js')];
  const shown = element('td', {}, 'tool:x:a\u202eb', element('b', {}, '\u200bc\ud800'), 7, undefined);
  expect(shown.textContent).toBe('tool:x:a\\u{202E}b\\u{200B}c\\u{D800}7');
  const params = { 'a\u202e': 'b\u200bc\u{e0041}\n' };
  expect(editableJson(params)).toBe('{\n  "a\\u202e": "b\\u200bc\\udb40\\udc41\\n"\n}');
  expect(JSON.parse(editableJson(params))).toEqual(params);
  expect(new ApiError(404, { message: 'no "a\u2066b"' }).message).toBe('no "a\\u{2066}b"');
});
