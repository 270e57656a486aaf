/** Captures a session's calls as a skill and a plan for a person to review. A capture is switched off until a person enables it. */
import type { Outcome } from '../calls/outcome.ts';
import { redact, secretsIn } from '../errors/redaction.ts';
import { REDACTED } from '../errors/secret-patterns.ts';
import { MAX_MEMBERS } from '../groups/group.ts';
import { looksLikeReference } from '../groups/references.ts';
import { invalidArgument } from '../schema/known-members.ts';
import { shortName, type TieredTool } from '../tools/tool.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { plural } from '../util/text/plural.ts';
import { truncateJson, truncateText } from '../util/text/truncate-json.ts';
import { escapeJson, escapeLine, formatForDisplay } from '../util/text/visible-text.ts';

type Params = Readonly<Record<string, unknown>>;

/** A call of the session, as its record has it. */
export interface CapturedCall {
  readonly tool: TieredTool;
  readonly params: Params;
  /** Absent while the call runs. */
  readonly outcome?: Pick<Outcome, 'status' | 'output'> | undefined;
}

interface CaptureSource {
  readonly name: string;
  readonly sessionKey: string;
  /** Tools that brought the session text from outside. */
  readonly taint: readonly string[];
  readonly capturedAt: string;
}

interface CapturedNode {
  readonly tool: string;
  readonly params: unknown;
  readonly after?: readonly string[];
}

interface Capture {
  /** The text of a `SKILL.md`, switched off. */
  readonly skill: string;
  readonly plan: { readonly nodes: Readonly<Record<string, CapturedNode>> };
  /** The number of calls that did not succeed. */
  readonly leftOut: number;
}

/** The most characters of one step's parameters in the skill; the plan has them in full. */
const SHOWN_LENGTH = 2_000;
/** The most bytes of all steps in the skill: a longer one could not be read. */
const MAX_STEPS_BYTES = 240 * 1_024;
/** The most characters of the tools in the skill's description. */
const MAX_LISTED_TOOLS = 500;
/** A shorter text occurs in too many outputs to refer to one of them. */
const MIN_REFERRED_LENGTH = 8;

/**
 * Captures the calls that succeeded, the oldest first, without what looks like a secret. Throws `CONTRACT_INVALID` for more of them than a
 * plan may have.
 */
export function captureCalls(calls: readonly CapturedCall[], source: CaptureSource): Capture {
  const succeeded = calls.filter(({ outcome }) => outcome?.status === 'success');
  if (succeeded.length > MAX_MEMBERS)
    throw invalidArgument('limit', `a plan has at most ${MAX_MEMBERS} calls; got ${succeeded.length}`);
  const nodes: Record<string, CapturedNode> = {};
  const references = new Map<string, string>();
  let previousNode: string | undefined;
  for (const [index, { tool, params, outcome }] of succeeded.entries()) {
    const node = `step${index + 1}`;
    const clean = withoutSecrets(params);
    nodes[node] = {
      tool: shortName(tool),
      params: withReferences(clean, references),
      ...(previousNode !== undefined && { after: [previousNode] }),
    };
    for (const [text, path] of referableTexts(outcome?.output?.content, node)) references.set(text, path);
    previousNode = node;
  }
  return { skill: skillText(succeeded, nodes, source), plan: { nodes }, leftOut: calls.length - succeeded.length };
}

/** Redacts as logs do: by name, by known value, and by the form of tokens. */
function withoutSecrets(params: Params): Params {
  const redacted = orUndefined(() => JSON.parse(redact(JSON.stringify(params), secretsIn(params))) as Params);
  // Parameters too large to be searched for secrets are left out as a whole.
  return redacted ?? { params: REDACTED };
}

/** Replaces texts that an earlier step's output contained by references to it. What only looks like a reference stays what it is. */
function withReferences(value: unknown, references: ReadonlyMap<string, string>): unknown {
  if (typeof value === 'string') {
    const path = references.get(value);
    return path === undefined ? value : { $from: path };
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => withReferences(item, references));
  if (looksLikeReference(value)) return { $literal: value };
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withReferences(member, references)]));
}

function referableTexts(value: unknown, path: string): (readonly [text: string, path: string])[] {
  if (typeof value === 'string') return value.length < MIN_REFERRED_LENGTH ? [] : [[value, path]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) =>
    name.includes('.') ? [] : referableTexts(member, `${path}.${name}`),
  );
}

function skillText(
  calls: readonly CapturedCall[],
  nodes: Readonly<Record<string, CapturedNode>>,
  source: CaptureSource,
): string {
  const { name, sessionKey, taint, capturedAt } = source;
  const tools = [...new Set(calls.map(({ tool }) => shortName(tool)))];
  const session = escapeJson(JSON.stringify(sessionKey));
  const frontMatter = {
    name,
    description: `Captured from ${plural(calls.length, 'call')} of the session ${escapeLine(sessionKey)}: ${truncateText(tools.join(', '), MAX_LISTED_TOOLS)}.`,
    enabled: false,
    'allowed-tools': tools,
    'required-tools': tools,
  };
  const steps = Object.entries(nodes).map(([node, { tool, params }], index) => {
    const paramsText = formatForDisplay(truncateJson(params, SHOWN_LENGTH));
    return `## ${node}: ${tool} (${calls[index]?.tool.tier ?? ''})\n\n\`\`\`json\n${paramsText}\n\`\`\``;
  });
  let bytes = 0;
  const listed = steps.filter((step) => {
    bytes += Buffer.byteLength(step);
    return bytes <= MAX_STEPS_BYTES;
  });
  const others = steps.length - listed.length;
  if (others > 0) listed.push(`${others} further steps stand in \`plan.json\` alone.`);
  const taintNote =
    taint.length === 0
      ? []
      : [
          `The session had read text from outside (${taint.map(escapeLine).join(', ')}), which the parameters may contain.`,
        ];
  return [
    '---',
    ...Object.entries(frontMatter).map(([field, value]) => `${field}: ${escapeJson(JSON.stringify(value))}`),
    '---',
    `Captured from the session ${session} at ${capturedAt}, for a person to review: say what the steps are for, put names in the place of`,
    'values, take out what does not belong, and set `enabled: true`. `plan.json` has the same steps as data.',
    ...taintNote,
    '',
    listed.join('\n\n'),
    '',
  ].join('\n');
}
