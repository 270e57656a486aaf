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
      Cat: open({ kind: { enum: ['cat'] }, name: text }, ['kind']),
      Dog: open({ kind: { const: 'dog' }, name: text, bark: text }, ['kind']),
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
  ['3.0.3', '3.1.0'].flatMap((version) => ['oneOf', 'anyOf'].map((union) => [way, union, version, given] as const)),
);

async function validatorFor(openapi: string, schemas: object, schema: object) {
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

test.each(CASES)('by %s, of %s, in OpenAPI %s', async (_way, union, openapi, [schemas, discriminator, cat, dog]) => {
  const validate = await validatorFor(openapi, schemas, { [union]: [link('Cat'), link('Dog')], discriminator });
  for (const kind of [cat, dog]) expect(validate({ body: { kind, name: 'Tom' } })).toEqual([]);
  expect(validate({ body: { kind: dog, name: 7 } })).not.toEqual([]);
  expect(validate({ body: { kind: dog, name: 'Tom', bark: 7 } })).not.toEqual([]);
  expect(validate({ body: { kind: 'fish', name: 'Tom' } })).not.toEqual([]);
  expect(validate({ body: { name: 'Tom' } })).not.toEqual([]);
});

test('a body without a tag that is optional must fit exactly one alternative', async () => {
  const schemas = {
    Cat: open({ kind: { enum: ['cat'] }, claws: text }, ['claws']),
    Dog: open({ kind: { enum: ['dog'] }, bark: text }, ['bark']),
  };
  const validate = await validatorFor('3.1.0', schemas, {
    oneOf: [link('Cat'), link('Dog')],
    discriminator: { propertyName: 'kind' },
  });
  expect(validate({ body: { claws: 'sharp' } })).toEqual([]);
  expect(validate({ body: { claws: 'sharp', bark: 'loud' } })).not.toEqual([]);
});

test.each(['oneOf', 'anyOf'])(
  'a tag that no other alternative has, or none, is that of the default in %s',
  async (union) => {
    const schemas = {
      Pet: open({ kind: { enum: ['cat', 'dog', 'fish'] } }),
      Cat: { allOf: [link('Pet'), open({ claws: text })] },
      Dog: open({ kind: text, bark: text }),
      Other: open({ kind: text, size: { type: 'integer' } }, ['size']),
    };
    const discriminator = {
      propertyName: 'kind',
      mapping: { cat: 'Cat', dog: '#/components/schemas/Dog' },
      defaultMapping: '#/components/schemas/Other',
    };
    const validate = await validatorFor('3.2.0', schemas, {
      [union]: [link('Cat'), link('Dog'), link('Other')],
      discriminator,
    });
    const valid = [
      { kind: 'cat', claws: 'sharp' },
      { kind: 'dog', bark: 'loud' },
      { kind: 'fish', size: 1 },
      { size: 1 },
    ];
    for (const body of valid) expect(validate({ body }), JSON.stringify(body)).toEqual([]);
    const invalid = [{ kind: 'dog', bark: 7 }, { kind: 'fish' }, { kind: 'fish', size: 'x' }, { claws: 'sharp' }, {}];
    for (const body of invalid) expect(validate({ body }), JSON.stringify(body)).not.toEqual([]);
  },
);

const PET = open({ kind: text, name: text, friend: link('Pet') }, ['kind', 'name']);
const CHILDREN = {
  Cat: { allOf: [link('Pet'), open({ claws: text })] },
  Dog: { allOf: [link('Pet'), open({ bark: text })] },
};
const union = (...names: readonly string[]) => ({
  oneOf: names.map(link),
  discriminator: { propertyName: 'kind', mapping: { cat: 'Cat', dog: 'Dog' } },
});

/** Documents in which the children of "Pet" extend what lists them. */
const CIRCLES: Readonly<Record<string, object>> = {
  'a parent that lists its children': { Pet: { ...PET, ...union('Cat', 'Dog') }, ...CHILDREN },
  'a parent that lists them by anyOf': {
    Pet: { ...PET, anyOf: [link('Cat'), link('Dog')], discriminator: union().discriminator },
    ...CHILDREN,
  },
  'a parent without a discriminator': {
    Pet: { ...PET, oneOf: [link('Cat'), link('Dog')] },
    Cat: { allOf: [link('Pet'), open({ kind: { enum: ['cat'] } })] },
    Dog: { allOf: [link('Pet'), open({ kind: { enum: ['dog'] }, bark: text })] },
  },
  'a parent whose list is a part of it': { Pet: { allOf: [PET, union('Cat', 'Dog')] }, ...CHILDREN },
  'a parent and a grandparent that list them': {
    Pet: { ...PET, ...union('Furry') },
    Furry: { allOf: [link('Pet'), union('Cat', 'Dog')] },
    Cat: { allOf: [link('Furry'), open({ claws: text })] },
    Dog: { allOf: [link('Furry'), open({ bark: text })] },
  },
  'a grandparent that lists them, over a parent that does not': {
    Pet: { ...PET, ...union('Cat', 'Dog') },
    Furry: { allOf: [link('Pet'), open({ fur: text })] },
    Cat: { allOf: [link('Furry'), open({ claws: text })] },
    Dog: { allOf: [link('Furry'), open({ bark: text })] },
  },
  'children within the list itself': {
    Pet: {
      ...PET,
      oneOf: [
        { allOf: [link('Pet'), open({ kind: { enum: ['cat'] } })] },
        { allOf: [link('Pet'), open({ kind: { enum: ['dog'] }, bark: text })] },
      ],
    },
  },
};

test.each(
  Object.entries(CIRCLES).flatMap(([form, schemas]) =>
    ['3.0.3', '3.1.0'].map((version) => [form, version, schemas] as const),
  ),
)('%s, in OpenAPI %s, accepts its children', async (_form, openapi, schemas) => {
  const validate = await validatorFor(openapi, schemas, { allOf: [link('Pet')], description: 'The pet.' });
  const cat = { kind: 'cat', name: 'Tom' };
  const dog = { kind: 'dog', name: 'Rex', bark: 'loud' };
  for (const body of [cat, dog, { ...cat, friend: dog }]) expect(validate({ body })).toEqual([]);
  const faulty = [{ kind: 'dog' }, { ...dog, bark: 7 }, { kind: 'fish', name: 'Nemo' }];
  for (const body of [...faulty, ...faulty.map((friend) => ({ ...cat, friend }))])
    expect(validate({ body }), JSON.stringify(body)).not.toEqual([]);
});

test('a body that is one of the children needs what its parent requires', async () => {
  const validate = await validatorFor('3.1.0', CIRCLES['a parent that lists its children'] ?? {}, link('Dog'));
  expect(validate({ body: { kind: 'dog', name: 'Rex', friend: { kind: 'cat', name: 'Tom' } } })).toEqual([]);
  expect(validate({ body: { kind: 'dog' } })).not.toEqual([]);
  expect(validate({ body: { kind: 'dog', name: 'Rex', friend: { kind: 'cat' } } })).not.toEqual([]);
});

test('a schema that is only its own alternative is still skipped', async () => {
  const schemas = { Pet: { oneOf: [link('Pet'), open({ name: text })] } };
  await expect(validatorFor('3.1.0', schemas, link('Pet'))).rejects.toThrow('operation');
});
