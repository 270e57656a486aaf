/** What the command line asks for. */
import { parseArgs } from 'node:util';
import type { Effort } from './comparison.ts';
import { PEERS, type Phase, SCENARIOS, WORKLOADS } from './workloads.ts';

export interface Options {
  /** Names of workloads and scenarios to run. */
  readonly wanted: ReadonlySet<string>;
  /** All that there is is wanted. */
  readonly whole: boolean;
  readonly quick: boolean;
  readonly json: boolean;
  /** What is measured in it goes into tables of its own. */
  readonly phase: Phase | undefined;
  /** Whether what is measured goes into the record and onto the page. */
  readonly keeps: boolean;
  /** Nothing is measured: the page is written from the record. */
  readonly pageOnly: boolean;
  readonly effort: Effort;
}

/** Many short rounds rather than few long ones: what disturbs a machine comes and goes within seconds. */
const USUAL: Effort = { rounds: 21, roundMs: 700, warmUpMs: 3_000 };
/** Long rounds in steady state: what a fleet shows that has run for a while. */
const STEADY: Effort = { rounds: 5, roundMs: 10_000, warmUpMs: 30_000 };
/** The first seconds of new processes: all that a short-lived agent's processes live. */
const COLD: Effort = { rounds: 7, roundMs: 5_000, warmUpMs: 0, cold: true };
const QUICK: Effort = { rounds: 7, roundMs: 300, warmUpMs: 700 };

const NAMES = [...WORKLOADS, ...SCENARIOS, ...PEERS.map((name) => ({ name, title: `against ${name}`, full: true }))];

const HELP = `Measures Pawl against hand-written BullMQ on the same Redis. The figures take the place of those in bench/record.json, from which
docs/performance.md is written; on another machine than the record's, only --full does so.

  npm run bench                      the usual part, about 7 minutes
  npm run bench -- --full            the whole record, about 70 minutes
  npm run bench -- --only NAME,NAME  these only; record and page are left as they are
  npm run bench -- --only NAME --add these only, into record and page
  npm run bench -- --quick           fewer and shorter rounds, for a first look; record and page are left as they are
  npm run bench -- --steady          with --only, for workloads and other systems: 5 rounds of 10 s, after 30 s of load; --add gives them
                                     tables of their own
  npm run bench -- --cold            the same for 7 rounds of new processes and stores, measured in their first 5 s
  npm run bench -- --page            the page from the record; nothing is measured
  npm run bench -- --json            the figures on standard output as JSON

Names (* only with --full, or by name):
${NAMES.map(({ name, title, full }) => `  ${(name + (full === true ? ' *' : '')).padEnd(16)} ${title}`).join('\n')}

Other systems are installed from the registry into bench/peers/ when they are wanted; one that does not install here is left
out, with the reason. Let the machine be quiet: nothing else should run.`;

/** Ends the process for `--help` and for wrong usage. */
export function options(): Options {
  const { values } = parse();
  if (values.help) {
    console.log(HELP);
    process.exit(0);
  }
  const named = values.only?.split(',').map((name) => name.trim());
  for (const name of named ?? [])
    if (!NAMES.some((one) => one.name === name))
      wrongUsage(
        `There is no workload or scenario ${JSON.stringify(name)}; there are: ${NAMES.map((one) => one.name).join(', ')}.`,
      );
  const wanted = named ?? NAMES.filter(({ full }) => values.full || full !== true).map(({ name }) => name);
  if (values.add && (values.only === undefined || values.quick))
    wrongUsage('--add goes with --only, and not with --quick.');
  const phase = values.steady ? 'steady' : values.cold ? 'cold' : undefined;
  if (phase !== undefined && (named === undefined || named.some((name) => SCENARIOS.some((one) => one.name === name))))
    wrongUsage(`--${phase} goes with --only, for workloads against BullMQ and for other systems.`);
  if (Number(values.steady) + Number(values.cold) + Number(values.quick) > 1)
    wrongUsage('Of --steady, --cold and --quick, one can be given.');
  if (values.page && (values.only !== undefined || values.quick || values.full))
    wrongUsage('--page measures nothing: it goes without --only, --quick and --full.');
  return {
    wanted: new Set(wanted),
    whole: values.full && named === undefined,
    quick: values.quick,
    json: values.json,
    phase,
    pageOnly: values.page,
    keeps: values.add || (named === undefined && !values.quick),
    effort: values.quick ? QUICK : phase === undefined ? USUAL : { steady: STEADY, cold: COLD }[phase],
  };
}

function parse() {
  try {
    return parseArgs({
      options: {
        full: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        steady: { type: 'boolean', default: false },
        cold: { type: 'boolean', default: false },
        only: { type: 'string' },
        add: { type: 'boolean', default: false },
        page: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    return wrongUsage(error instanceof Error ? error.message : String(error));
  }
}

function wrongUsage(message: string): never {
  console.error(`${message}\nnpm run bench -- --help says what there is.`);
  process.exit(2);
}
