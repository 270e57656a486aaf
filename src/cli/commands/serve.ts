/** `pawl serve`: the HTTP API and Bull Board, without workers. */
import { loadSettings } from '../../main.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { shareCode } from '../../workers/workspace/protected-paths.ts';
import { type CliContext, listenForStop, print } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine } from '../print.ts';
import { openApiProcess } from '../processes/api-process.ts';
import { protectToolCode } from '../processes/protect-tool-code.ts';
import { loadToolFiles, toolsetsOf } from '../processes/tool-files.ts';
import { watchServer } from '../processes/watchdog.ts';

interface ServeCommandOptions {
  readonly port?: number;
  readonly host?: string;
  /** Tools files: their hooks run around the calls of this process, and their toolsets limit what sessions see. */
  readonly tools?: readonly string[];
}

export async function runServe(context: CliContext, options: ServeCommandOptions): Promise<number> {
  const { port, host } = options;
  const settings = await loadSettings(defined({ httpPort: port, httpHost: host }));
  const { tools = [] } = options;
  // A signal ends the process until the files are loaded, whose code may block the event loop.
  const files = await loadToolFiles(tools, context.cwd);
  watchServer(settings, files);
  const stop = listenForStop(context);
  try {
    if (tools.length > 0) {
      protectToolCode(tools, [...files.sources, ...(files.inexactImports ?? [])], settings, context.cwd);
      // Workers run the calls.
      shareCode(settings.dataDir);
    }
    const api = await openApiProcess(settings, { hooks: files.hooks, toolsets: await toolsetsOf(files) });
    try {
      await Promise.race([api.ready(), stop.promise]);
      const { addresses } = api;
      print(context, context.json ? jsonLine({ event: 'ready', pid: process.pid, ...addresses }) : api.describe());
      await stop.promise;
    } finally {
      await api.close();
    }
    return EXIT_CODES.success.code;
  } finally {
    stop.stopListening();
  }
}
