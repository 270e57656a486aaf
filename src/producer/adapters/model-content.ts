/** What a model reads of a success: the output as text, and the content that stands beside it, as far as models take it. */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { ContentBlock } from '../../shared/tools/tool-result.ts';
import { startOf, wellFormed } from '../../shared/util/text/text-cut.ts';
import { capOutput } from '../../shared/util/text/truncate-output.ts';

export type ModelContent =
  | { readonly type: 'text'; readonly text: string }
  /** `data` is base64. */
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

type Success = Extract<ToolResultEnvelope, { readonly status: 'success' }>;

/** What all providers take. Anything else would fail the whole request, and each one after it. */
const IMAGE_TYPES: readonly string[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MAX_IMAGE_CHARACTERS = 5_000_000;
const MAX_ADDRESS_CHARACTERS = 2_048;
/** The mark of a cut says where programs read the whole; a model can only ask. */
const WHEN_CUT = '[This is not all of it: call again for a smaller part to see more.]';
/** Of the texts of one result. */
const DEFAULT_OUTPUT_BYTES = 65_536;

/**
 * In the order in which the tool gave it; what a model cannot be shown is told. Providers refuse an empty text beside others. The texts
 * have `maxBytes` together, and a mark where they are cut.
 */
export function modelContent(
  { output, callId = '' }: Success,
  maxBytes = DEFAULT_OUTPUT_BYTES,
): readonly ModelContent[] {
  const { metadata = {} } = output;
  const { content, whole = metadata['whole'] } = capOutput(output.content, maxBytes, callId);
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  const blocks = (metadata['content'] ?? []) as readonly ContentBlock[];
  const beside = blocks.flatMap(partsOf);
  // An output that was cut is not shown in full by another way.
  const more = beside.filter((part) => part.type === 'image' || !(whole !== undefined || isSaid(part.text, content)));
  const said = [{ type: 'text', text } as const, ...more];
  const parts = textOf(beside) === text ? beside : capped(said, maxBytes, whole !== undefined, callId);
  const shown = parts.filter((part) => part.type === 'image' || part.text.trim() !== '');
  return wellFormed(shown.length === 0 ? [{ type: 'text', text }] : shown);
}

/** The output, the first of the parts, has its size: what stands beside it has the room behind. */
function capped(
  parts: readonly ModelContent[],
  maxBytes: number,
  isOutputCut: boolean,
  callId: string,
): ModelContent[] {
  let room = maxBytes;
  let isCut = isOutputCut;
  const shown = parts.flatMap<ModelContent>((part, index) => {
    if (part.type === 'image') return [part];
    if (index > 0 && isCut) return [];
    const { content, whole } = index === 0 ? { content: part.text } : capOutput(part.text, Math.max(0, room), callId);
    room -= Buffer.byteLength(part.text);
    isCut ||= whole !== undefined;
    return [{ type: 'text', text: String(content) }];
  });
  return isCut ? [...shown, { type: 'text', text: WHEN_CUT }] : shown;
}

/** The texts alone, for a provider's form that takes no images there. */
export function textOf(content: readonly ModelContent[]): string {
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
}

export function dataUrl({ mimeType, data }: Extract<ModelContent, { type: 'image' }>): string {
  return `data:${mimeType};base64,${data}`;
}

function partsOf(block: ContentBlock): readonly ModelContent[] {
  switch (block.type) {
    case 'text':
      return [{ type: 'text', text: block.text }];
    case 'image':
    case 'audio':
      return [media(block.data, block.mimeType)];
    default: {
      const { uri, mimeType = 'application/octet-stream', text, blob } = block;
      if (text === undefined && blob === undefined) return [{ type: 'text', text: `[${addressOf(uri)}]` }];
      const said = text === undefined ? [] : [{ type: 'text', text } as const];
      return blob === undefined ? said : [...said, media(blob, mimeType, `${uri}: `)];
    }
  }
}

function media(data: string, mimeType: string, name = ''): ModelContent {
  const bytes = Buffer.byteLength(data, 'base64');
  if (!IMAGE_TYPES.includes(mimeType))
    return { type: 'text', text: `[${name}${mimeType}, ${bytes} bytes: cannot be shown to you]` };
  if (data.length > MAX_IMAGE_CHARACTERS)
    return { type: 'text', text: `[${name}${mimeType}, ${bytes} bytes: too large to be shown to you]` };
  return { type: 'image', data, mimeType };
}

/** What holds its data itself is told by its beginning. */
function addressOf(uri: string): string {
  return uri.length <= MAX_ADDRESS_CHARACTERS ? uri : `${startOf(uri, MAX_ADDRESS_CHARACTERS)}…`;
}

/** Whether a text stands in the output already, as that of a resource does. */
function isSaid(text: string, output: unknown): boolean {
  if (typeof output === 'string') return output.includes(text);
  if (typeof output !== 'object' || output === null) return false;
  return Object.values(output).some((member) => isSaid(text, member));
}
