import { describe, expect, test } from 'vitest';
import { compileSchema } from '../../../src/shared/schema/schema.ts';

const NAMES = ['__proto__', 'constructor', 'toString', 'valueOf', 'hasOwnProperty', '__defineGetter__', 'plain'];
/** Other properties, with which Ajv writes its checks in another way. */
const NINE = [...'abcdefghi'].map((name) => `"${name}":{}`).join(',');
const TAGGED =
  '{"oneOf":[{"type":"object","properties":{N:{"const":"a"},"v":{"type":"string"}},"required":[N,"v"]},{"type":"object","properties":{N:{"const":"b"},"v":{"type":"number"}},"required":[N,"v"]}]}';

/** `N` stands for the name, in quotes. */
const TABLE: readonly (readonly [schema: string, taken: readonly string[], refused: readonly string[]])[] = [
  ['{"properties":{N:{"type":"string"}}}', ['{N:"a"}', '{}'], ['{N:1}', '{N:{}}']],
  ['{"properties":{N:{"type":"string"}},"required":[N]}', ['{N:"a"}'], ['{}', '{N:1}']],
  ['{"required":[N,"z"]}', ['{N:1,"z":1}'], ['{"z":1}']],
  ['{"additionalProperties":false}', ['{}'], ['{N:1}']],
  ['{"properties":{N:{}},"additionalProperties":false}', ['{N:1}'], ['{"b":1}']],
  [`{"properties":{${NINE},N:{}},"additionalProperties":false}`, ['{N:1}'], ['{"z":1}']],
  [`{"properties":{${NINE},"y":{}},"additionalProperties":false}`, ['{"a":1}'], ['{N:1}']],
  ['{"properties":{"a":{}},"additionalProperties":{"type":"string"}}', ['{N:"a"}'], ['{N:1}']],
  ['{"properties":{N:{}},"unevaluatedProperties":false}', ['{N:1}'], ['{"b":1}']],
  ['{"anyOf":[{"properties":{N:{}},"required":[N]},{}],"unevaluatedProperties":false}', ['{N:1}'], ['{"b":1}']],
  ['{"anyOf":[{"properties":{"b":{}}}],"unevaluatedProperties":false}', ['{"b":1}'], ['{N:1}', '{"b":1,N:1}']],
  ['{"patternProperties":{N:{"type":"string"}}}', ['{N:"a"}', '{"other":1}'], ['{N:1}']],
  ['{"propertyNames":{"pattern":"^x"}}', ['{"x":1}'], ['{N:1}']],
  ['{"propertyNames":{"enum":[N]}}', ['{N:1}'], ['{"x":1}']],
  ['{"dependentRequired":{N:["b"]}}', ['{}', '{N:1,"b":1}'], ['{N:1}']],
  ['{"dependentRequired":{"b":[N]}}', ['{"b":1,N:1}'], ['{"b":1}']],
  ['{"dependentSchemas":{N:{"required":["b"]}}}', ['{}', '{N:1,"b":1}'], ['{N:1}']],
  ['{"maxProperties":0}', ['{}'], ['{N:1}']],
  ['{"properties":{"o":{"properties":{N:{"minimum":2}}}}}', ['{"o":{N:2}}'], ['{"o":{N:1}}']],
  ['{"properties":{N:{"properties":{N:{"type":"string"}}}}}', ['{N:{N:"a"}}'], ['{N:{N:1}}']],
  ['{"allOf":[{"properties":{N:{"type":"string"}}}]}', ['{N:"a"}'], ['{N:1}']],
  ['{"const":{N:1}}', ['{N:1}'], ['{N:2}', '{}', '{N:1,"a":1}']],
  ['{"const":{N:{"a":[1]}}}', ['{N:{"a":[1]}}'], ['{N:{"a":[2]}}', '{N:{"a":{"0":1}}}']],
  ['{"const":{}}', ['{}'], ['{N:2}']],
  ['{"enum":[{N:1},1,"1",null]}', ['{N:1}', '1', '"1"', 'null'], ['{N:2}', 'true', '"null"']],
  ['{"uniqueItems":true}', ['[{N:1},{N:2}]'], ['[{N:1},{N:1}]']],
  [TAGGED, ['{N:"a","v":"s"}', '{N:"b","v":1}'], ['{N:"a","v":1}', '{"v":1}', '{N:"c","v":1}']],
];

describe('names that objects inherit', () => {
  test.each(NAMES)('%s is a name like any other, in every keyword', (name) => {
    const json = (text: string) => JSON.parse(text.replaceAll(/\bN\b/g, JSON.stringify(name)));
    const wrong = TABLE.flatMap(([schema, taken, refused]) => {
      const validate = compileSchema(json(schema));
      return [
        ...taken.filter((value) => validate(json(value)).length > 0).map((value) => `${schema} refuses ${value}`),
        ...refused.filter((value) => validate(json(value)).length === 0).map((value) => `${schema} takes ${value}`),
      ];
    });
    expect(wrong).toEqual([]);
  });

  test('the fault of a property is reported at its path', () => {
    const schema = JSON.parse('{"type":"object","properties":{"o":{"properties":{"__proto__":{"enum":["a"]}}}}}');
    expect(compileSchema(schema)(JSON.parse('{"o":{"__proto__":"b"}}'))).toEqual([
      { path: 'o.__proto__', message: 'must be one of "a"; got "b"' },
    ]);
  });
});

test('thousands of properties that references evaluate are allowed, and no others', () => {
  const names = Array.from({ length: 100 }, (_, index) => `D${index}`);
  const properties = (name: string) =>
    Object.fromEntries(Array.from({ length: 40 }, (_, index) => [name + index, true]));
  const validate = compileSchema({
    type: 'object',
    allOf: names.map((name) => ({ $ref: `#/$defs/${name}` })),
    unevaluatedProperties: false,
    $defs: Object.fromEntries(names.map((name) => [name, { type: 'object', properties: properties(name) }])),
  });
  expect(validate(Object.fromEntries(names.map((name) => [`${name}39`, 1])))).toEqual([]);
  expect(validate({ D039: 1, x: 1 })).toEqual([{ path: 'x', message: 'is unknown' }]);
});
