/**
 * The demo's own tools, beside the base tools. They work on a small shop: a price service that is sometimes unwell, a search
 * index, and a ledger file of invoices in which a second line would be a second invoice.
 */
import { appendFile } from 'node:fs/promises';
import { z } from 'zod';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';

/** The world outside of Pawl, in which the tools have their effects. */
export interface Shop {
  /** Such as `http://127.0.0.1:41234`. */
  readonly serviceUrl: string;
  /** One JSON line for each invoice that was sent. */
  readonly ledgerFile: string;
  /** One JSON line whenever a tool with effects begins or finishes; the proof of what really ran. */
  readonly effectsFile: string;
}

export interface EffectLine {
  readonly tool: string;
  readonly event: 'began' | 'finished';
  readonly callId: string;
  readonly pid: number;
}

export interface InvoiceLine {
  readonly invoice: string;
  readonly amount: number;
}

export const CIRCUIT_FAILURES = 3;
const CIRCUIT_COOLDOWN_MS = 1_500;

/** The tools, whose types callers use. Only workers have a shop. */
export type DemoTools = ReturnType<typeof demoTools>;

export function demoTools(shop: Shop) {
  return {
    fetchPrice: fetchPriceTool(shop),
    checkStock: checkStockTool(shop),
    syncIndex: syncIndexTool(shop),
    sendInvoice: sendInvoiceTool(shop),
  };
}

function fetchPriceTool(shop: Shop) {
  return defineTool({
    name: 'fetch_price',
    version: '1.0.0',
    description: 'Asks the price service for the price of an item.',
    tier: 'read-only',
    needs: ['network'],
    input: z.object({ item: z.string() }),
    output: z.object({ item: z.string(), price: z.number() }),
    async run({ item }, ctx) {
      const { price } = z.object({ price: z.number() }).parse(await ask(shop, ctx, `/price/${item}`));
      return { output: { item, price }, display: `${item} costs ${price}` };
    },
  });
}

function checkStockTool(shop: Shop) {
  return defineTool({
    name: 'check_stock',
    version: '1.0.0',
    description: 'Asks the stock service how many of an item there are.',
    tier: 'read-only',
    needs: ['network'],
    // The numbers are small so that the demo is fast. By default, circuits of read-only tools open after 8 failures, for 20 s.
    circuit: { consecutiveFailures: CIRCUIT_FAILURES, cooldownMs: CIRCUIT_COOLDOWN_MS },
    input: z.object({ item: z.string() }),
    output: z.object({ item: z.string(), stock: z.number() }),
    async run({ item }, ctx) {
      const { stock } = z.object({ stock: z.number() }).parse(await ask(shop, ctx, `/stock/${item}`));
      return { output: { item, stock }, display: `${stock} of ${item}` };
    },
  });
}

function syncIndexTool(shop: Shop) {
  return defineTool({
    name: 'sync_index',
    version: '1.0.0',
    description: 'Puts documents into the search index, each under its own name.',
    tier: 'workspace',
    effects: 'idempotent',
    needs: ['network'],
    input: z.object({ documents: z.array(z.string()).min(1) }),
    output: z.object({ indexed: z.number() }),
    async run({ documents }, ctx) {
      await note(shop, 'sync_index', 'began', ctx);
      for (const [index, document] of documents.entries()) {
        await ask(shop, ctx, `/index/${document}`, 'PUT');
        ctx.progress({ progress: index + 1, total: documents.length });
      }
      await note(shop, 'sync_index', 'finished', ctx);
      return { output: { indexed: documents.length }, display: `${documents.length} documents indexed` };
    },
  });
}

function sendInvoiceTool(shop: Shop) {
  return defineTool({
    name: 'send_invoice',
    version: '1.0.0',
    description: 'Sends an invoice to a customer and waits for the receipt.',
    tier: 'system',
    effects: 'once',
    needs: ['network'],
    input: z.object({ invoice: z.string(), amount: z.number().positive() }),
    output: z.object({ invoice: z.string(), receipt: z.string() }),
    async run({ invoice, amount }, ctx) {
      await note(shop, 'send_invoice', 'began', ctx);
      const line: InvoiceLine = { invoice, amount };
      await appendFile(shop.ledgerFile, `${JSON.stringify(line)}\n`);
      ctx.progress({ progress: 1, total: 2, message: 'sent; waiting for the receipt' });
      const { receipt } = z.object({ receipt: z.string() }).parse(await ask(shop, ctx, `/receipts/${invoice}`, 'POST'));
      await note(shop, 'send_invoice', 'finished', ctx);
      return { output: { invoice, receipt }, display: `${invoice} sent, receipt ${receipt}` };
    },
  });
}

/** Throws an error with `status`, which Pawl classifies; it never tries again by itself. */
async function ask(shop: Shop, ctx: ToolContext, path: string, method = 'GET'): Promise<unknown> {
  const response = await ctx.fetch(new URL(path, shop.serviceUrl), { method });
  if (response.ok) return response.json();
  throw Object.assign(new Error(`${path} answered ${response.status}`), { status: response.status });
}

async function note(shop: Shop, tool: string, event: EffectLine['event'], ctx: ToolContext): Promise<void> {
  const line: EffectLine = { tool, event, callId: ctx.callId, pid: process.pid };
  await appendFile(shop.effectsFile, `${JSON.stringify(line)}\n`);
}
