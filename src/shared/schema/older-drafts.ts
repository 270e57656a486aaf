/** Translates keywords of JSON Schema drafts 3 to 2019-09 to 2020-12. */

/** One schema of a document, and how its changes are reported. */
export interface TranslatedPart {
  readonly made: Record<string, unknown>;
  note(change: string): void;
  drop(keyword: string, why: string): void;
}

export function translateOlderDrafts(part: TranslatedPart): void {
  translateRecursion(part);
  translateDependencies(part);
  translateDraft3(part);
}

/** Draft 2019-09 writes a reference that a wider schema can extend; here the document is the widest. */
function translateRecursion({ made, note, drop }: TranslatedPart): void {
  const reference = made['$recursiveRef'];
  if (reference !== undefined) {
    delete made['$recursiveRef'];
    if (reference === '#' && made['$ref'] === undefined) {
      made['$ref'] = '#';
      note('$recursiveRef made $ref');
    } else note(`$recursiveRef ${JSON.stringify(reference)} dropped, it is not "#"`);
  }
  // Draft 2020-12 writes the same with names.
  if (made['$dynamicRef'] !== undefined && made['$ref'] === undefined) {
    made['$ref'] = made['$dynamicRef'];
    delete made['$dynamicRef'];
    note('$dynamicRef made $ref');
  } else if (made['$dynamicRef'] !== undefined) drop('$dynamicRef', 'there is a $ref beside it');
  if (made['$recursiveAnchor'] !== undefined) drop('$recursiveAnchor', 'its references are plain ones now');
}

/** Before 2019-09, one keyword held lists of names and schemas. */
function translateDependencies({ made, note, drop }: TranslatedPart): void {
  const { dependencies } = made;
  if (dependencies === undefined) return;
  if (typeof dependencies !== 'object' || dependencies === null || Array.isArray(dependencies)) {
    drop('dependencies', 'it is no object');
    return;
  }
  const required: Record<string, unknown> = {};
  const schemas: Record<string, unknown> = {};
  for (const [name, needed] of Object.entries(dependencies)) {
    if (typeof needed === 'string') required[name] = [needed];
    else if (Array.isArray(needed)) required[name] = needed;
    else schemas[name] = needed;
  }
  delete made['dependencies'];
  if (Object.keys(required).length > 0)
    made['dependentRequired'] = { ...required, ...(made['dependentRequired'] as object | undefined) };
  if (Object.keys(schemas).length > 0)
    made['dependentSchemas'] = { ...schemas, ...(made['dependentSchemas'] as object | undefined) };
  note('dependencies made dependentRequired and dependentSchemas');
}

/** Draft 3, and many authors since, mark a required property within it. */
export function requiredByThemselves({ made, note }: TranslatedPart): void {
  const { properties, required } = made;
  if (typeof properties !== 'object' || properties === null || Array.isArray(properties)) return;
  const marked = (value: unknown) => typeof (value as { readonly required?: unknown } | null)?.required === 'boolean';
  const entries = Object.entries(properties);
  if (!entries.some(([, value]) => marked(value))) return;
  const names = entries.filter(([, value]) => (value as { readonly required?: unknown } | null)?.required === true);
  if (names.length > 0)
    made['required'] = [...new Set([...(Array.isArray(required) ? required : []), ...names.map(([name]) => name)])];
  made['properties'] = Object.fromEntries(
    entries.map(([name, value]) => {
      if (!marked(value)) return [name, value];
      const { required: _, ...rest } = value as Record<string, unknown>;
      return [name, rest];
    }),
  );
  note('required of properties made a list of names');
}

function translateDraft3({ made, note }: TranslatedPart): void {
  if (made['divisibleBy'] !== undefined) {
    made['multipleOf'] ??= made['divisibleBy'];
    delete made['divisibleBy'];
    note('divisibleBy made multipleOf');
  }
  if (made['extends'] !== undefined) {
    made['allOf'] = [...((made['allOf'] as unknown[] | undefined) ?? []), ...[made['extends']].flat()];
    delete made['extends'];
    note('extends made allOf');
  }
  if (made['disallow'] !== undefined) {
    const refused = [made['disallow']].flat().map((each) => (typeof each === 'string' ? { type: each } : each));
    made['allOf'] = [...((made['allOf'] as unknown[] | undefined) ?? []), { not: { anyOf: refused } }];
    delete made['disallow'];
    note('disallow made not');
  }
}
