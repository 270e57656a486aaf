/** A body of an imported operation is checked by the alternative that its tag names, though others would take it as well. */
import { expect, test } from 'vitest';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';

const link = (name: string) => ({ $ref: `#/components/schemas/${name}` });
const open = (properties: object, required: readonly string[] = []) => ({ type: 'object', properties, required });
const text = { type: 'string' };

const ANIMALS = {
  Cat: open({ kind: text, name: text }, ['kind']),
  Dog: open({ kind: text, name: text, bark: text }, ['kind']),
};
const extending = (parent: object) => ({
  Pet: parent,
  Cat: { allOf: [link('Pet'), open({ claws: text })] },
  Dog: { allOf: [link('Pet'), open({ bark: text })] },
});

/** How a document says which alternative a tag names; the tags of the cat and of the dog. */
const WAYS: Readonly<Record<string, readonly [schemas: object, discriminator: object, cat: unknown, dog: unknown]>> = {
  'names of schemas': [ANIMALS, { propertyName: 'kind' }, 'Cat', 'Dog'],
  'a mapping': [
    ANIMALS,
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
    extending(open({ kind: text, name: text }, ['kind'])),
    { propertyName: 'kind' },
    'Cat',
    'Dog',
  ],
  'a mapping to the document by its address': [
    ANIMALS,
    {
      propertyName: 'kind',
      mapping: { cat: 'api.yaml#/components/schemas/Cat', dog: './api.yaml#/components/schemas/Dog' },
    },
    'cat',
    'dog',
  ],
  'a mapping to files': [
    ANIMALS,
    { propertyName: 'kind', mapping: { cat: 'Cat.json', dog: './pets/Dog.yaml' } },
    'cat',
    'dog',
  ],
  'a mapping for one of them': [ANIMALS, { propertyName: 'kind', mapping: { cat: 'Cat' } }, 'cat', 'Dog'],
  'a mapping to what an alternative refers to': [
    { ...ANIMALS, Cat: { $ref: '#/components/schemas/A%20cat' }, 'A cat': ANIMALS.Cat },
    { propertyName: 'kind', mapping: { cat: 'A cat', dog: 'Dog' } },
    'cat',
    'dog',
  ],
  'a mapping of numbers': [
    {
      Cat: open({ kind: { type: 'integer' }, name: text }, ['kind']),
      Dog: open({ kind: { type: 'integer' }, name: text, bark: text }, ['kind']),
    },
    { propertyName: 'kind', mapping: { 1: 'Cat', 2: 'Dog' } },
    1,
    2,
  ],
  'a mapping beside a parent that lists all tags': [
    extending(open({ kind: { enum: ['cat', 'dog'] }, name: text }, ['kind'])),
    { propertyName: 'kind', mapping: { cat: 'Cat', dog: 'Dog' } },
    'cat',
    'dog',
  ],
  'names beside a parent that lists all tags': [
    extending(open({ kind: { enum: ['Cat', 'Dog'] }, name: text }, ['kind'])),
    { propertyName: 'kind' },
    'Cat',
    'Dog',
  ],
  'the mapping of a parent': [
    extending({
      ...open({ kind: text, name: text }, ['kind']),
      discriminator: { propertyName: 'kind', mapping: { cat: 'Cat', dog: 'Dog' } },
    }),
    { propertyName: 'kind' },
    'cat',
    'dog',
  ],
  'the names of nested alternatives': [
    {
      Cat: ANIMALS.Cat,
      Dog: { oneOf: [link('Husky'), link('Poodle')], discriminator: { propertyName: 'kind' } },
      Husky: ANIMALS.Dog,
      Poodle: ANIMALS.Dog,
    },
    { propertyName: 'kind' },
    'Cat',
    'Poodle',
  ],
};

const CASES = Object.entries(WAYS).flatMap(([way, given]) =>
  ['3.0.3', '3.1.0'].map((version) => [way, version, given] as const),
);

async function validatorFor(openapi: string, schemas: object, discriminator: object) {
  const schema = { oneOf: [link('Cat'), link('Dog')], discriminator };
  const content = { 'application/json': { schema } };
  const { tools, skipped } = await importOpenApi({
    openapi,
    servers: [{ url: 'https://example.org' }],
    paths: { '/pets': { post: { operationId: 'add', requestBody: { required: true, content } } } },
    components: { schemas },
  });
  expect(skipped).toEqual([]);
  return compileSchema(sanitizeSchema(tools[0]?.spec.inputSchema).schema);
}

test.each(CASES)('by %s, in OpenAPI %s', async (_way, openapi, [schemas, discriminator, cat, dog]) => {
  const validate = await validatorFor(openapi, schemas, discriminator);
  for (const kind of [cat, dog]) expect(validate({ body: { kind, name: 'Tom' } })).toEqual([]);
  expect(validate({ body: { kind: dog, name: 7 } })).not.toEqual([]);
  expect(validate({ body: { kind: 'fish', name: 'Tom' } })).not.toEqual([]);
  expect(validate({ body: { name: 'Tom' } })).not.toEqual([]);
});

test('a body without a tag that is optional must fit exactly one alternative', async () => {
  const schemas = {
    Cat: open({ kind: { enum: ['cat'] }, claws: text }, ['claws']),
    Dog: open({ kind: { enum: ['dog'] }, bark: text }, ['bark']),
  };
  const validate = await validatorFor('3.1.0', schemas, { propertyName: 'kind' });
  expect(validate({ body: { claws: 'sharp' } })).toEqual([]);
  expect(validate({ body: { claws: 'sharp', bark: 'loud' } })).not.toEqual([]);
});
