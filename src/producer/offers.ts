/**
 * The tools that producers can call, as the fleet's workers publish them: a cached copy of the catalogue, with the schema of
 * each definition compiled once.
 */
import { PawlError } from '../shared/failure.ts';
import { compileSchema, nearest, type Validator } from '../shared/schema.ts';
import type { Catalogue, CatalogueContent, ToolOffer } from '../shared/store/catalogue.ts';
import { qualifiedName } from '../shared/tool.ts';
import { compareVersions } from '../shared/versions.ts';

const REFRESH_MS = 5_000;
/** An unknown name asks the catalogue again, but not more often than this. */
const ASK_AGAIN_MS = 200;

export interface Offer extends ToolOffer {
  readonly workers: number;
  readonly validate: Validator;
}

export class Offers {
  readonly #catalogue: Catalogue;
  readonly #onError: (error: Error) => void;
  #byName = new Map<string, Offer>();
  #content: CatalogueContent = { tools: [], workers: [] };
  #validators = new Map<string, Validator>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;

  constructor(catalogue: Catalogue, onError: (error: Error) => void) {
    this.#catalogue = catalogue;
    this.#onError = onError;
    this.#timer = setInterval(() => this.refresh(), REFRESH_MS);
    this.#timer.unref();
  }

  /** Reads the catalogue again in the background. */
  refresh(): void {
    this.#read().catch(this.#onError);
  }

  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const content = await this.#catalogue.read();
    const byName = new Map<string, Offer>();
    const validators = new Map<string, Validator>();
    // The newest version that a living worker runs comes last and wins.
    for (const offer of [...content.tools].sort(byPreference)) {
      const validate = this.#validators.get(offer.definition) ?? compileSchema(offer.inputSchema);
      validators.set(offer.definition, validate);
      byName.set(qualifiedName(offer), { ...offer, validate });
    }
    this.#content = content;
    this.#byName = byName;
    this.#validators = validators;
    this.#readAtMs = performance.now();
  }

  /** The offer of a tool. Throws `UNKNOWN_TOOL` with the nearest names. */
  async find(namespace: string, name: string): Promise<Offer> {
    const found = this.#byName.get(`${namespace}.${name}`);
    if (found !== undefined) return found;
    if (performance.now() - this.#readAtMs > ASK_AGAIN_MS) {
      await this.#read();
      const published = this.#byName.get(`${namespace}.${name}`);
      if (published !== undefined) return published;
    }
    throw unknownTool([...this.#byName.values()], namespace, name);
  }

  /** Known now, without asking anybody. */
  peek(namespace: string, name: string): Offer | undefined {
    return this.#byName.get(`${namespace}.${name}`);
  }

  /** The catalogue, read anew. */
  async all(): Promise<CatalogueContent> {
    await this.#read();
    return this.#content;
  }

  /** The one offer of each name that calls go to, read anew. */
  async current(): Promise<readonly Offer[]> {
    await this.#read();
    return [...this.#byName.values()];
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

/** `UNKNOWN_TOOL`, with the nearest names among what is offered. */
export function unknownTool(
  offers: readonly Pick<ToolOffer, 'namespace' | 'name'>[],
  namespace: string,
  name: string,
): PawlError {
  const names = offers.map((offer) => (offer.namespace === namespace ? offer.name : qualifiedName(offer)));
  const suggestions = nearest(name, names);
  const hint =
    suggestions.length > 0
      ? `Did you mean ${suggestions.join(' or ')}?`
      : offers.length === 0
        ? 'No worker has published a tool yet: is one running?'
        : `Known tools: ${names.slice(0, 20).join(', ')}.`;
  return new PawlError(
    'UNKNOWN_TOOL',
    `There is no tool ${JSON.stringify(name)} in namespace ${JSON.stringify(namespace)}. ${hint}`,
    { details: { suggestions } },
  );
}

function byPreference(
  a: ToolOffer & { readonly workers: number },
  b: ToolOffer & { readonly workers: number },
): number {
  const alive = Number(a.workers > 0) - Number(b.workers > 0);
  return alive !== 0 ? alive : compareVersions(a.version, b.version);
}
