/** The inside of a benchmark process: says that it is ready, answers questions, and ends with whoever started it. */
import type { Message, ProcessOptions, Question, Questions, Topic, Usage } from './protocol.ts';
import { runAtMs, runCount, runsBetween } from './runs.ts';

export type Answers = {
  readonly [T in Topic]?: (asked: Questions[T]['asked']) => Promise<Questions[T]['answered']>;
};

export function processOptions(): ProcessOptions {
  return JSON.parse(process.argv[2] ?? '{}') as ProcessOptions;
}

/** What every worker that notes its runs can tell. */
export const workerAnswers: Answers = {
  'run-times': async ({ numbers }) => numbers.map((number) => runAtMs(number) ?? null),
  'runs-between': async ({ spans }) => spans.map(({ calledAtMs, startedAtMs }) => runsBetween(calledAtMs, startedAtMs)),
};

/** Call it when everything is connected. `close` ends the connections. */
export function serve(close: () => Promise<void>, answers: Answers): void {
  const all: Answers = {
    ...answers,
    usage: async ({ collect }) => usage(collect),
    stop: async () => {
      await close();
      return null;
    },
  };
  process.on('message', (question: Question) => {
    const answer = all[question.topic] as ((asked: unknown) => Promise<Questions[Topic]['answered']>) | undefined;
    if (answer === undefined)
      return send({ type: 'error', id: question.id, message: `no answer to ${question.topic}` });
    answer(question.asked)
      .then(
        (answered) => send({ type: 'answer', id: question.id, answered }),
        (error: unknown) =>
          send({
            type: 'error',
            id: question.id,
            message: error instanceof Error ? (error.stack ?? '') : String(error),
          }),
      )
      .finally(() => {
        if (question.topic === 'stop') process.disconnect();
      });
  });
  process.on('disconnect', () => process.exit());
  send({ type: 'ready' });
}

function send(message: Message): void {
  process.send?.(message);
}

export function cpuMs(since?: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1_000;
}

function usage(collect: boolean): Usage {
  if (collect) globalThis.gc?.();
  const { rss, heapUsed } = process.memoryUsage();
  return { cpuMs: cpuMs(), rssBytes: rss, heapBytes: heapUsed, runs: runCount() };
}
