/** What a model reads of a success: the output as text, and the content that stands beside it, as far as models take it. */
import type { ToolResultEnvelope } from '../../shared/envelope.ts';
import type { ContentBlock } from '../../shared/tool-result.ts';

export type ModelContent =
  | { readonly type: 'text'; readonly text: string }
  /** `data` is base64. */
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

type Success = Extract<ToolResultEnvelope, { readonly status: 'success' }>;

/** What all providers take. Anything else would fail the whole request, and each one after it. */
const IMAGE_TYPES: readonly string[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const MAX_IMAGE_CHARACTERS = 5_000_000;

/** In the order in which the tool gave it; what a model cannot be shown is told. Providers refuse an empty text beside others. */
export function modelContent({ output }: Success): readonly ModelContent[] {
  const { content, metadata = {} } = output;
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  const blocks = (metadata['content'] ?? []) as readonly ContentBlock[];
  const beside = blocks.flatMap(partsOf);
  // An output that was cut is not shown in full by another way.
  const isCut = metadata['whole'] !== undefined;
  const more = beside.filter((part) => part.type === 'image' || !(isCut || isSaid(part.text, content)));
  const parts = textOf(beside) === text ? beside : [{ type: 'text', text } as const, ...more];
  const shown = parts.filter((part) => part.type === 'image' || part.text !== '');
  return shown.length === 0 ? [{ type: 'text', text }] : shown;
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

/** Whether a text stands in the output already, as that of a resource does. */
function isSaid(text: string, output: unknown): boolean {
  if (typeof output === 'string') return output.includes(text);
  if (typeof output !== 'object' || output === null) return false;
  return Object.values(output).some((member) => isSaid(text, member));
}
