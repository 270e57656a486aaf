/** The blob store that the settings name. */
import { join } from 'node:path';
import type { Settings } from '../../config/config.ts';
import { blobFolder } from '../../config/setting-types.ts';
import { PawlError } from '../../errors/failure.ts';
import type { BlobStores } from './blob-stores.ts';
import { FileBlobs } from './file-blobs.ts';

type StoreSettings = Pick<Settings, 'blobStore' | 'dataDir' | 'redisUrl' | 'segmentsAfterMs'>;

/** Writes to that store from now on. Throws `CONFIGURATION` for a folder that cannot be written, or that others may not have. */
export function useConfiguredStore(
  blobs: BlobStores,
  { blobStore, dataDir, redisUrl, segmentsAfterMs }: StoreSettings,
) {
  if (blobStore === 'redis') return;
  if (blobStore === 'file' && segmentsAfterMs !== undefined && redisUrl !== undefined)
    throw new PawlError(
      'CONFIGURATION',
      'blobStore: expected file:FOLDER, a folder that all processes of this Redis share, and got file, the data folder of this one: with segmentsAfterMs, a process without the folder could answer no call that was moved.',
    );
  blobs.keepIn(new FileBlobs(blobFolder(blobStore) ?? join(dataDir, 'blobs')));
}
