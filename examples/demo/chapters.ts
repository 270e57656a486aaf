/** The story, chapter by chapter. Each makes real calls and checks how they ended: envelopes, effects and processes. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { edit } from '../../src/workers/tools/edit.ts';
import { read } from '../../src/workers/tools/read.ts';
import { shell } from '../../src/workers/tools/shell.ts';
import { write } from '../../src/workers/tools/write.ts';
import { expectEqual, expectError, expectSuccess, Mismatch } from './assertions.ts';
import { processesWith } from './processes.ts';
import type { Stage } from './stage.ts';
import { CIRCUIT_FAILURES } from './tools.ts';
import { until, within } from './wait.ts';

export interface Chapter {
  readonly title: string;
  run(stage: Stage): Promise<void>;
}

const CART = `export function total(items) {
  return items.reduce((sum, item) => sum + item.price, 0);
}
`;
const WRONG = 'sum + item.price,';
const RIGHT = 'sum + item.price * item.quantity,';
const CART_TEST = `import assert from 'node:assert/strict';
import { total } from './cart.mjs';

assert.equal(total([{ price: 5, quantity: 3 }]), 15);
console.log('the test passes');
`;

/** Timers may fire a little early. */
const MARGIN_MS = 20;

/** Write, test, mend, test, read: what a coding agent does all day. */
async function mendABug(stage: Stage): Promise<void> {
  const writeFile = (path: string, content: string, why: string) =>
    stage.call({
      tool: write,
      params: { path, content },
      doing: `write ${path}`,
      ended: (result) => {
        expectSuccess(result);
        return `wrote ${path}: ${why}`;
      },
    });
  const runTest = (exitCode: number, printed: string, why: string) =>
    stage.call({
      tool: shell,
      params: { command: [process.execPath, 'cart.test.mjs'] },
      doing: 'node cart.test.mjs',
      ended: (result) => {
        const { content } = expectSuccess(result).output;
        expectEqual('the exit code of the test', content.exitCode, exitCode);
        if (!`${content.stdout}${content.stderr}`.includes(printed))
          throw new Mismatch(`the test to print "${printed}"`, JSON.stringify(content));
        return `ran node cart.test.mjs, exit code ${exitCode}: ${why}`;
      },
    });

  await writeFile('cart.mjs', CART, 'a function that adds up prices, and forgets the quantity');
  await writeFile('cart.test.mjs', CART_TEST, 'its test expects 3 items at 5 to cost 15');
  await runTest(1, '5 !== 15', 'it says 5 instead of 15 (a failing program is still an answer)');
  await stage.call({
    tool: edit,
    params: { path: 'cart.mjs', old_string: WRONG, new_string: RIGHT },
    doing: 'edit cart.mjs',
    ended: (result) => {
      expectEqual('replacements', expectSuccess(result).output.content.replacements, 1);
      return 'multiplied each price by its quantity';
    },
  });
  await runTest(0, 'the test passes', 'mended');
  await stage.call({
    tool: read,
    params: { path: 'cart.mjs' },
    doing: 'read cart.mjs',
    ended: (result) => {
      expectEqual('the file', expectSuccess(result).output.content.content, CART.replace(WRONG, RIGHT));
      return 'read cart.mjs back: the file is as the edit left it';
    },
  });
}

/** Two callers in two clients use one key. */
async function twoCallersOneKey(stage: Stage): Promise<void> {
  const { sendInvoice } = stage.tools;
  const invoice = 'INV-1001';
  const params = { invoice, amount: 120 };
  const options = { idempotencyKey: `invoice:${invoice}` };
  const otherClient = await stage.client();
  const other = await otherClient.session(stage.session.key);
  const receipt = stage.service.hold(`/receipts/${invoice}`);

  const first = stage.call({
    tool: sendInvoice,
    params,
    options,
    doing: `caller A sends ${invoice}`,
    ended: (result) => {
      expectSuccess(result);
      expectEqual('fromCache', result.fromCache, false);
      return `caller A: ${invoice} is sent`;
    },
  });
  await within('the invoice to be sent', Promise.race([receipt.arrived, first]));
  const second = stage.call({
    tool: sendInvoice,
    params,
    options,
    by: other,
    doing: `caller B sends ${invoice} too`,
    onQueued: () => receipt.release(),
    word: 'ok, same',
    ended: async (result) => {
      const original = expectSuccess(await first);
      expectEqual('the second answer', expectSuccess(result).output, original.output);
      expectEqual('how the second call was answered', result.cache?.matchedOn, 'inflight');
      return 'caller B, same key, same time: joined the running call; both get the same answer';
    },
  });
  await Promise.all([first, second]);
  await theSameKeyLater(stage, params, options);
}

/** The same key again after the call's end, with the same and with other parameters. */
async function theSameKeyLater(
  stage: Stage,
  params: { readonly invoice: string; readonly amount: number },
  options: { readonly idempotencyKey: string },
): Promise<void> {
  const { sendInvoice } = stage.tools;
  const { invoice } = params;
  await stage.call({
    tool: sendInvoice,
    params,
    options,
    doing: `${invoice} once more`,
    word: 'ok, same',
    ended: (result) => {
      expectSuccess(result);
      expectEqual('how the third call was answered', result.cache?.matchedOn, 'completed');
      return 'same key again, later: answered from the record';
    },
  });
  await stage.call({
    tool: sendInvoice,
    params: { invoice, amount: 999 },
    options,
    doing: `${invoice} with another amount`,
    word: 'refused',
    ended: (result) => {
      expectError(result, 'IDEMPOTENCY_CONFLICT');
      expectEqual('invoices in the ledger', stage.invoices(), [{ invoice, amount: 120 }]);
      return 'same key, other amount: refused as a mistake. The ledger holds one invoice, of 120';
    },
  });
}

/** A service that fails twice. */
async function aFlakyService(stage: Stage): Promise<void> {
  stage.service.failPrices(2);
  await stage.call({
    tool: stage.tools.fetchPrice,
    params: { item: 'lamp' },
    doing: 'ask for the price of a lamp',
    ended: (result) => {
      expectEqual('the price', expectSuccess(result).output.content.price, 19.9);
      expectEqual('tries', result.attempts, 3);
      expectEqual('requests that reached the service', stage.service.count('/price/'), 3);
      expectEqual(
        'why it was tried again',
        result.retriedBy?.map((retry) => retry.reasonCode),
        ['HTTP_503', 'HTTP_503'],
      );
      const delays = result.retriedBy?.map((retry) => `${retry.delayMs} ms`).join(' and ');
      return `the service answered 503 twice; tried again after ${delays}, random so that callers spread out`;
    },
  });
}

const LAMP = { item: 'lamp' };
const ASK_FOR_LAMPS = 'ask for the stock of lamps';

/** A service that is down, its circuit, and its return. */
async function aCircuit(stage: Stage): Promise<void> {
  stage.service.setStockDown(true);
  const retryAfterMs = await theCircuitOpens(stage);
  stage.service.setStockDown(false);
  const seconds = (retryAfterMs / 1_000).toFixed(1);
  stage.table.note(`the service is back; the circuit lets no call through for another ${seconds} s`);
  await sleep(retryAfterMs + MARGIN_MS);
  await theCircuitCloses(stage);
}

async function stockCircuit(stage: Stage): Promise<string | undefined> {
  const circuits = await stage.pawl.circuits.list();
  return circuits.find(({ key }) => key.includes('check_stock'))?.circuit.state;
}

/** Calls until the circuit is open and refuses them. Returns the time until its first probe. */
async function theCircuitOpens(stage: Stage): Promise<number> {
  const { checkStock } = stage.tools;
  let retryAfterMs = 0;
  await stage.call({
    tool: checkStock,
    params: LAMP,
    doing: ASK_FOR_LAMPS,
    ended: async (result) => {
      expectEqual('status', result.status, 'retriable_error');
      expectEqual('the circuit', await stockCircuit(stage), 'OPEN');
      return `503 three times in a row: the circuit opens (here after ${CIRCUIT_FAILURES} failures), no more tries`;
    },
  });
  for (const why of ['the circuit is open: refused at once', 'refused again; a service that is down gets no load']) {
    await stage.call({
      tool: checkStock,
      params: LAMP,
      doing: ASK_FOR_LAMPS,
      ended: (result) => {
        expectEqual('status', result.status, 'circuit_open');
        retryAfterMs = expectError(result, 'CIRCUIT_OPEN').retryAfterMs ?? 0;
        expectEqual('requests that reached the service', stage.service.count('/stock/'), CIRCUIT_FAILURES);
        return `${why} (still ${CIRCUIT_FAILURES} requests)`;
      },
    });
  }
  return retryAfterMs;
}

async function theCircuitCloses(stage: Stage): Promise<void> {
  const probes = [
    {
      doing: 'as the probe',
      state: 'HALF_OPEN',
      why: 'after the pause one call goes through as a probe, alone: it succeeds',
    },
    {
      doing: 'as the second probe',
      state: 'CLOSED',
      why: 'a second probe succeeds too: the circuit is closed, and all calls pass again',
    },
  ];
  for (const { doing, state, why } of probes)
    await stage.call({
      tool: stage.tools.checkStock,
      params: LAMP,
      doing: `${ASK_FOR_LAMPS}, ${doing}`,
      ended: async (result) => {
        expectSuccess(result);
        expectEqual('the circuit', await stockCircuit(stage), state);
        return why;
      },
    });
}

/** kill -9 in the middle of a call whose second run does no harm. */
async function aKilledWorkerRunsAgain(stage: Stage): Promise<void> {
  const { service } = stage;
  const documents = ['apple', 'birch', 'cedar', 'daisy', 'elder'];
  const third = service.hold('/index/cedar');
  const call = stage.call({
    tool: stage.tools.syncIndex,
    params: { documents },
    options: { idempotencyKey: 'sync:1' },
    doing: 'put 5 documents into the index',
    ended: (result) => {
      expectEqual('documents', expectSuccess(result).output.content.indexed, documents.length);
      expectEqual('tries', result.attempts, 2);
      const pids = stage.effects('sync_index', 'began').map(({ pid }) => pid);
      expectEqual('runs that began', pids.length, 2);
      expectEqual('processes that ran it', new Set(pids).size, 2);
      expectEqual('runs that finished', stage.effects('sync_index', 'finished').length, 1);
      expectEqual('the index', service.indexed, documents);
      return 'a second run does no harm, so another worker ran it again; each of the 5 documents is there once';
    },
  });
  await within('the third document', Promise.race([third.arrived, call]));
  const [began] = stage.effects('sync_index', 'began');
  if (began === undefined) throw new Mismatch('the effect log to show the call', 'nothing');
  await stage.killAndReplace(began.pid);
  third.release();
  await call;
}

/** kill -9 in the middle of a call that must never run twice. */
async function aKilledWorkerStops(stage: Stage): Promise<void> {
  const { sendInvoice } = stage.tools;
  const invoice = 'INV-1002';
  const params = { invoice, amount: 80 };
  const options = { idempotencyKey: `invoice:${invoice}` };
  const receipt = stage.service.hold(`/receipts/${invoice}`);

  const call = stage.call({
    tool: sendInvoice,
    params,
    options,
    doing: `send ${invoice}`,
    ended: (result) => {
      expectError(result, 'OUTCOME_UNKNOWN');
      expectEqual('invoices in the ledger', sentTimes(stage, invoice), 1);
      return 'did the invoice go out? Pawl cannot know and does not guess: OUTCOME_UNKNOWN, no second run';
    },
  });
  await within('the invoice to be sent', Promise.race([receipt.arrived, call]));
  const began = stage.effects('send_invoice', 'began').at(-1);
  if (began === undefined) throw new Mismatch('the effect log to show the call', 'nothing');
  await stage.killAndReplace(began.pid);
  receipt.release();
  const { callId = '' } = await call;
  await theOutcomeIsResolved(stage, callId, params);
}

/** The call is made again before and after an operator resolves its outcome. */
async function theOutcomeIsResolved(
  stage: Stage,
  callId: string,
  params: { readonly invoice: string; readonly amount: number },
): Promise<void> {
  const { sendInvoice } = stage.tools;
  const { invoice } = params;
  const options = { idempotencyKey: `invoice:${invoice}` };
  await stage.call({
    tool: sendInvoice,
    params,
    options,
    doing: `${invoice} once more`,
    word: 'unknown',
    ended: (result) => {
      expectError(result, 'OUTCOME_UNKNOWN');
      expectEqual('invoices in the ledger', sentTimes(stage, invoice), 1);
      return 'asked again: the same answer, still no second run';
    },
  });
  await stage.pawl.resolve(callId, { as: 'succeeded', output: { invoice, receipt: 'found in the ledger' } });
  stage.table.note(`the ledger is checked: ${invoice} stands there once, so the call is resolved as succeeded`);
  await stage.call({
    tool: sendInvoice,
    params,
    options,
    doing: `${invoice} once more`,
    word: 'ok, same',
    ended: (result) => {
      expectEqual('the answer', expectSuccess(result).output.content, { invoice, receipt: 'found in the ledger' });
      expectEqual('fromCache', result.fromCache, true);
      expectEqual('invoices in the ledger', sentTimes(stage, invoice), 1);
      return 'asked again: succeeded, as resolved. The ledger still holds the invoice once';
    },
  });
}

function sentTimes(stage: Stage, invoice: string): number {
  return stage.invoices().filter((line) => line.invoice === invoice).length;
}

/** A program with children, cancelled. */
async function aCancelledCall(stage: Stage): Promise<void> {
  // This word is in the command lines of the program and of its children, which are found by it.
  const word = `import-${randomBytes(6).toString('hex')}.log`;
  const queued = Promise.withResolvers<string>();
  const settlement = Promise.withResolvers<string>();
  let before = 0;
  let hasEnded = false;
  const call = stage.call({
    tool: shell,
    params: { command: ['sh', '-c', ': >"$0"; tail -f "$0" & tail -f "$0" & wait', word] },
    doing: 'an import with two helper programs, which would run for ever',
    word: 'cancelled',
    onQueued: queued.resolve,
    ended: async (result) => {
      hasEnded = true;
      expectError(result, 'CANCELLED');
      expectEqual('how the cancellation ended', await settlement.promise, 'unsettled');
      const left = await processesWith(word);
      if (left.length > 0) throw new Mismatch('no process of the call to be left', `processes ${left.join(', ')}`);
      return `cancelled while it ran: ${before} processes belonged to it, and none is left; what it did until then stays done`;
    },
  });
  const callId = await within('the call to be queued', Promise.race([queued.promise, call.then(() => '')]));
  const helpersRun = until('the two helper programs to run', async () => {
    return hasEnded || (await processesWith(`tail -f ${word}`)).length === 2;
  });
  await Promise.race([helpersRun, call]);
  before = (await processesWith(word)).length;
  const cancellation = await stage.pawl.cancel(callId);
  settlement.resolve(cancellation.settlement);
  await call;
}

export const CHAPTERS: readonly Chapter[] = [
  { title: 'An agent mends a bug: write, test, edit, test, read', run: mendABug },
  { title: 'Two callers, one key: the work is done once', run: twoCallersOneKey },
  { title: 'A service fails twice: the call is tried again', run: aFlakyService },
  { title: 'A service is down: its circuit opens, and closes when it is back', run: aCircuit },
  { title: 'A worker is killed (kill -9) in a call that may run again', run: aKilledWorkerRunsAgain },
  { title: 'A worker is killed (kill -9) in a call that must not run twice', run: aKilledWorkerStops },
  { title: 'A running call is cancelled', run: aCancelledCall },
];
