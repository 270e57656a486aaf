import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { imageTypeOf } from '../../shared/util/image-type.ts';
import { readsFiles } from './lib/tool-presets.ts';

/** The limit of the providers: 5 MB for an image, in base64. */
const MAX_BYTES = 3_750_000;

export const viewImage = defineBaseTool({
  name: 'view_image',
  version: '1.0.0',
  description: `Shows an image of the workspace (PNG, JPEG, GIF or WebP, at most ${MAX_BYTES} bytes) to a model that can see. The type is detected from the content, not from the name.`,
  ...readsFiles,
  input: z.object({ path: z.string().min(1).describe('Path of the image, relative to the workspace root.') }),
  output: z.object({ path: z.string(), mimeType: z.string(), bytes: z.int() }),
  async run({ path }, ctx) {
    const bytes = await ctx.workspace.read(path, { maxBytes: MAX_BYTES });
    const mimeType = imageTypeOf(bytes);
    if (mimeType === undefined)
      throw new PawlError('INVALID_PARAMS', `${JSON.stringify(path)} is not a PNG, JPEG, GIF or WebP image.`);
    return {
      output: { path, mimeType, bytes: bytes.length },
      display: `Viewed ${path} (${mimeType}, ${bytes.length} bytes)`,
      content: [{ type: 'image', mimeType, data: Buffer.from(bytes).toString('base64') }],
    };
  },
});
