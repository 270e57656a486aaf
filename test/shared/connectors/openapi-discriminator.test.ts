/** A body of an imported operation is checked by the alternative that its tag names, though others would take it as well. */
import { expect, test } from 'vitest';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';

const link = (name: string) => ({ $ref: `#/components/schemas/${name}` });
const open = (properties: object, required: readonly string[] = []) => ({ type: 'object', properties, required });
const text = { type: 'string' };

/** How a document says which alternative a tag names; the tags of the cat and of the dog. */
const WAYS: Readonly<Record<string, readonly [schemas: object, discriminator: object, cat: string, dog: string]>> = {
  'names of schemas': [
    { Cat: open({ kind: text, name: text }, ['kind']), Dog: open({ kind: text, name: text, bark: text }, ['kind']) },
    { propertyName: 'kind' },
    'Cat',
    'Dog',
  ],
  'a mapping': [
    { Cat: open({ kind: text, name: text }, ['kind']), Dog: open({ kind: text, name: text, bark: text }, ['kind']) },
    { propertyName: 'kind', mapping: { cat: '#/components/schemas/Cat', dog: 'Dog' } },
    'cat',
    'dog',
  ],
  'values of the schemas': [
    {
      Cat: open({ kind: { enum: ['cat'] }, name: text }),
      Dog: open({ kind: { const: 'dog' }, name: text, bark: text }),
    },
    { propertyName: 'kind' },
    'cat',
    'dog',
  ],
  'a parent that both extend': [
    {
      Pet: open({ kind: text, name: text }, ['kind']),
      Cat: { allOf: [link('Pet'), open({ claws: text })] },
      Dog: { allOf: [link('Pet'), open({ bark: text })] },
    },
    { propertyName: 'kind' },
    'Cat',
    'Dog',
  ],
};

const CASES = Object.entries(WAYS).flatMap(([way, given]) =>
  ['3.0.3', '3.1.0'].map((version) => [way, version, given] as const),
);

test.each(CASES)('by %s, in OpenAPI %s', async (_way, openapi, [schemas, discriminator, cat, dog]) => {
  const schema = { oneOf: [link('Cat'), link('Dog')], discriminator };
  const content = { 'application/json': { schema } };
  const { tools, skipped } = await importOpenApi({
    openapi,
    servers: [{ url: 'https://example.org' }],
    paths: { '/pets': { post: { operationId: 'add', requestBody: { required: true, content } } } },
    components: { schemas },
  });
  expect(skipped).toEqual([]);
  const validate = compileSchema(sanitizeSchema(tools[0]?.spec.inputSchema).schema);
  for (const kind of [cat, dog]) expect(validate({ body: { kind, name: 'Tom' } })).toEqual([]);
  expect(validate({ body: { kind: dog, name: 7 } })).not.toEqual([]);
  expect(validate({ body: { kind: 'fish', name: 'Tom' } })).not.toEqual([]);
  expect(validate({ body: { name: 'Tom' } })).not.toEqual([]);
});
