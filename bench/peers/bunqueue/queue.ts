import { processOptions } from '../../child.ts';

export const QUEUE = 'calls';

export interface CallData {
  readonly bytes: number;
}

export const connection = JSON.parse(processOptions().storeUrl) as { readonly host: string; readonly port: number };
