/** A schema as a plain object. Only `compileSchema` says whether it is a valid one. */
export type JsonSchema = Readonly<Record<string, unknown>>;
