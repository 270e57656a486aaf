/** Makes elements of values, and formats values for people. Texts are only set as text, so that data of calls never becomes markup. */

/** `element('p', { class: 'note' }, 'text', child)`; names that start with `on` are listeners. Texts are shown as `shownText` writes them. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : String(value));
  }
  const shown = children.filter((child) => child !== undefined && child !== false && child !== '');
  made.append(...shown.map((child) => (typeof child === 'string' ? shownText(child) : child)));
  return made;
}

/** As in `visible-text.ts`. */
const DECEPTIVE =
  /(?![\n\t])(?:[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800\ufffc\u{16fe4}\u{1d159}]|(?<=\p{M}{4})\p{M})/gu;

/** Escapes invisible characters and those that change the reading direction. */
export function shownText(text) {
  return String(text).replace(DECEPTIVE, (found) => `\\u{${found.codePointAt(0).toString(16).toUpperCase()}}`);
}

/** JSON to edit: it means the same, with such characters as JSON's own escapes. */
export function editableJson(value) {
  const escapeUnit = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(value, null, 2).replace(DECEPTIVE, (found) => found.split('').map(escapeUnit).join(''));
}

export function shownJson(value) {
  return shownText(typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? ''));
}

/** HTTP gives the time in whole seconds, and an answer may travel for some. */
const CLOCK_FAULT_MS = 5_000;
let aheadMs = 0;

/** Learns the server's time, because the clock of the operator's machine may be wrong. */
export function learnTime(serverMs) {
  const ownAheadMs = Date.now() - serverMs;
  if (Math.abs(ownAheadMs - aheadMs) < CLOCK_FAULT_MS || Number.isNaN(serverMs)) return;
  aheadMs = Math.abs(ownAheadMs) < CLOCK_FAULT_MS ? 0 : ownAheadMs;
}

function now() {
  return Date.now() - aheadMs;
}

/** `9 min 5 s` until a moment; empty when it has passed. */
export function timeLeft(atMs) {
  const seconds = Math.ceil((atMs - now()) / 1000);
  if (seconds <= 0) return '';
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** `12 ms`, `3.4 s`, `5 min`, `7 h`, `3 d`. */
export function duration(ms) {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.floor(ms / 3_600_000)} h` : `${Math.floor(ms / 86_400_000)} d`;
}

/** A time that was set, exactly: `90 s`. */
export function exactDuration(ms) {
  return `${ms / 1_000} s`;
}

/** The time since a moment, without tenths, which would flicker. */
export function ago(atMs) {
  const ms = now() - atMs;
  return ms < 1_000 ? 'now' : `${ms < 60_000 ? `${Math.floor(ms / 1_000)} s` : duration(ms)} ago`;
}

const MOMENT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export function moment(atMs) {
  return MOMENT.format(atMs);
}

/** `1 call`, `2 calls`. */
export function count(number, noun) {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}
