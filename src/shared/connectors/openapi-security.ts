/** The credentials of an operation of an OpenAPI document, as headers and as parts of the query that a worker fills with secrets. */
import { distinctNames } from '../model-tools/names.ts';
import { listOf } from '../util/json/json-types.ts';
import { asText } from '../util/text/quote-value.ts';
import type { SecretSource } from './connector.ts';
import { type Json, NotImportable, objectOf, resolveReference } from './openapi-references.ts';

type SecretSources = Readonly<Record<string, SecretSource>>;

interface Credentials {
  readonly headers: Record<string, string>;
  readonly query?: Record<string, string>;
  readonly secrets: Record<string, SecretSource>;
}

export function schemesOf(document: Json): Json {
  return objectOf(objectOf(document['components'])?.['securitySchemes']) ?? {};
}

/**
 * Chooses an alternative of authentication that headers and the query can express: the first with a configured secret, else the first.
 * Throws `NotImportable` where there is none.
 */
export function credentialsOf(document: Json, operation: Json, sources: SecretSources = {}): Credentials | undefined {
  const requirements = listOf(operation['security'] ?? document['security']);
  const alternatives = requirements.map((alternative) => Object.keys(objectOf(alternative) ?? {}));
  const isNamed = (alternative: readonly string[]) => alternative.some((name) => sources[name] !== undefined);
  const withSecrets = alternatives.filter(isNamed);
  const withoutSecrets = alternatives.some((alternative) => alternative.length === 0)
    ? []
    : alternatives.filter((alternative) => !isNamed(alternative));
  let firstError: NotImportable | undefined;
  for (const alternative of [...withSecrets, ...withoutSecrets]) {
    try {
      return credentials(document, alternative, sources);
    } catch (error) {
      if (!(error instanceof NotImportable)) throw error;
      firstError ??= error;
    }
  }
  if (firstError !== undefined) throw firstError;
  return undefined;
}

function credentials(document: Json, alternative: readonly string[], sources: SecretSources): Credentials {
  const schemes = schemesOf(document);
  const secretNames = secretNamesOf(Object.keys(schemes));
  const headers: Record<string, string> = {};
  const query: Record<string, string> = {};
  const secrets: Record<string, SecretSource> = {};
  for (const name of alternative) {
    const scheme = resolveReference(document, schemes[name]);
    if (scheme === undefined) throw new NotImportable(`it is secured by ${name}, which the document does not describe`);
    const secret = secretNames.get(name) ?? '';
    secrets[secret] = sources[name] ?? { env: variableOf(secret) };
    const value = `{secret:${secret}}`;
    const { type, in: place, name: key } = scheme;
    const method = type === 'http' ? asText(scheme['scheme']).toLowerCase() : asText(type);
    if (type === 'apiKey' && place === 'header' && typeof key === 'string') headers[key] = value;
    else if (type === 'apiKey' && place === 'query' && typeof key === 'string') query[key] = value;
    else if (method === 'basic') headers['authorization'] = `Basic ${value}`;
    else if (['oauth2', 'openIdConnect', 'bearer'].includes(method)) headers['authorization'] = `Bearer ${value}`;
    else throw new NotImportable(`it is secured by ${name}, which no header can say`);
  }
  const headerNames = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  if (headerNames.size + Object.keys(query).length < alternative.length)
    throw new NotImportable(`it is secured by ${alternative.join(' and ')} in the same place`);
  return { headers, ...(Object.keys(query).length > 0 && { query }), secrets };
}

/** A scheme's secret has its name, without what no name of a variable has. Schemes that would share one name end in a digest. */
function secretNamesOf(schemes: readonly string[]): ReadonlyMap<string, string> {
  const plain = schemes.map((name) => name.replaceAll(/[^A-Za-z0-9_-]/g, '_').replace(/^[^A-Za-z]/, 's$&'));
  const distinct = distinctNames(plain, schemes);
  return new Map(schemes.map((scheme, index) => [scheme, distinct[index] ?? '']));
}

function variableOf(secret: string): string {
  return `PAWL_SECRET_${secret.replaceAll('-', '_').toUpperCase()}`;
}
