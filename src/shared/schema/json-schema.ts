/** A schema as a plain object. Only `compileSchema` checks that it is valid. */
export type JsonSchema = Readonly<Record<string, unknown>>;
