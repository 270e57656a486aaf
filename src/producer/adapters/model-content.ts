/** The content that a model reads of a success: the output as text, and the tool's content blocks, as far as models accept them. */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { ContentBlock } from '../../shared/tools/tool-result.ts';
import { imageTypeOf, longestSideOf } from '../../shared/util/image-type.ts';
import { wellFormed, withEllipsis } from '../../shared/util/text/text-cut.ts';
import { capOutput } from '../../shared/util/text/truncate-output.ts';

export type ModelContent =
  | { readonly type: 'text'; readonly text: string }
  /** `data` is base64. */
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

type Success = Extract<ToolResultEnvelope, { readonly status: 'success' }>;

const MAX_IMAGE_CHARACTERS = 5_000_000;
/** In pixels. A screenshot of a whole page is often longer, and Anthropic refuses a request with it. */
const MAX_IMAGE_SIDE = 8_000;
const MAX_ADDRESS_CHARACTERS = 2_048;
/** The instruction for a model, which cannot read the whole output as a program can. */
const TRUNCATION_NOTE = '[This is not all of it: call again for a smaller part to see more.]';
/** The size of all texts of one result together. */
const DEFAULT_OUTPUT_BYTES = 65_536;

/**
 * The content in the tool's order. A text describes each block that a model cannot be shown. Empty texts beside others are left out,
 * because providers refuse them. All texts together have `maxBytes`, and a mark where they are cut.
 */
export function modelContent(
  { output, callId = '' }: Success,
  maxBytes = DEFAULT_OUTPUT_BYTES,
  showsImages = true,
): readonly ModelContent[] {
  const { metadata = {} } = output;
  const { content, whole: wholeOutput = metadata['whole'] } = capOutput(output.content, maxBytes, callId);
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  const blocks = (metadata['content'] ?? []) as readonly ContentBlock[];
  const blockContent = blocks.flatMap(toModelContent);
  // The content blocks must not show what was cut from the output.
  const extraContent = blockContent.filter(
    (part) => part.type === 'image' || !(wholeOutput !== undefined || containsText(part.text, content)),
  );
  const uncapped = [{ type: 'text', text } as const, ...extraContent];
  const parts =
    textOf(blockContent) === text ? blockContent : truncateTexts(uncapped, maxBytes, wholeOutput !== undefined, callId);
  const shown = parts.filter((part) => part.type === 'image' || part.text.trim() !== '');
  const result = shown.length === 0 ? [{ type: 'text', text } as const] : shown;
  return wellFormed(showsImages ? result : result.map(namedImage));
}

/** The name of an image, for a provider that takes none in the result of a tool. */
function namedImage(part: ModelContent): ModelContent {
  if (part.type === 'text') return part;
  const bytes = Buffer.byteLength(part.data, 'base64');
  return { type: 'text', text: `[${part.mimeType}, ${bytes} bytes: cannot be shown to you]` };
}

/** The output is the first part and has been cut already. The other parts share the bytes that it leaves. */
function truncateTexts(
  parts: readonly ModelContent[],
  maxBytes: number,
  isOutputTruncated: boolean,
  callId: string,
): ModelContent[] {
  let remainingBytes = maxBytes;
  let isTruncated = isOutputTruncated;
  const shown = parts.flatMap<ModelContent>((part, index) => {
    if (part.type === 'image') return [part];
    if (index > 0 && isTruncated) return [];
    const { content, whole } =
      index === 0 ? { content: part.text } : capOutput(part.text, Math.max(0, remainingBytes), callId);
    remainingBytes -= Buffer.byteLength(part.text);
    isTruncated ||= whole !== undefined;
    return [{ type: 'text', text: String(content) }];
  });
  return isTruncated ? [...shown, { type: 'text', text: TRUNCATION_NOTE }] : shown;
}

/** The texts without the images. */
export function textOf(content: readonly ModelContent[]): string {
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
}

/** Whether a result is to be shown in parts. Otherwise its text is all of it. */
export function hasImages(content: readonly ModelContent[]): boolean {
  return content.some(({ type }) => type === 'image');
}

export function dataUrl({ mimeType, data }: Extract<ModelContent, { type: 'image' }>): string {
  return `data:${mimeType};base64,${data}`;
}

function toModelContent(block: ContentBlock): readonly ModelContent[] {
  switch (block.type) {
    case 'text':
      return [{ type: 'text', text: block.text }];
    case 'image':
    case 'audio':
      return [mediaContent(block.data, block.mimeType)];
    default: {
      const { uri, mimeType = 'application/octet-stream', text, blob } = block;
      // A `data:` address may be long.
      if (text === undefined && blob === undefined)
        return [{ type: 'text', text: `[${withEllipsis(uri, MAX_ADDRESS_CHARACTERS)}]` }];
      const textContent = text === undefined ? [] : [{ type: 'text', text } as const];
      return blob === undefined ? textContent : [...textContent, mediaContent(blob, mimeType, `${uri}: `)];
    }
  }
}

/**
 * An image of a type that all providers accept, named by its content. Another image, a wrong name of its type and odd base64 would fail the
 * whole request, and each later one of the conversation.
 */
function mediaContent(data: string, mimeType: string, name = ''): ModelContent {
  const isImage = /^image\//i.test(mimeType);
  const described = (reason: string): ModelContent => {
    const bytes = Buffer.byteLength(data, 'base64');
    return { type: 'text', text: `[${name}${mimeType}, ${bytes} bytes: ${reason}]` };
  };
  if (isImage && data.length > MAX_IMAGE_CHARACTERS) return described('too large to be shown to you');
  const bytes = isImage ? Buffer.from(data, 'base64') : Buffer.alloc(0);
  const imageType = imageTypeOf(bytes);
  if (imageType === undefined) return described('cannot be shown to you');
  const side = longestSideOf(bytes, imageType);
  if (side > MAX_IMAGE_SIDE)
    return described(`cannot be shown to you with ${side} pixels on a side; at most ${MAX_IMAGE_SIDE}`);
  return { type: 'image', data: bytes.toString('base64'), mimeType: imageType };
}

/** Whether the output contains a text already, as it often does for the text of a resource. */
function containsText(text: string, output: unknown): boolean {
  if (typeof output === 'string') return output.includes(text);
  if (typeof output !== 'object' || output === null) return false;
  return Object.values(output).some((member) => containsText(text, member));
}
