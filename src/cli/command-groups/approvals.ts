/** The commands below `approvals`, `questions` and `policy`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { APPROVAL_STATES } from '../../shared/approvals/approval.ts';
import { type Action, command, commandGroup, jsonOption, limitOption } from '../command-options.ts';

const approvalsModule = () => import('../commands/approvals.ts');
const policyModule = () => import('../commands/policy.ts');
const questionsModule = () => import('../commands/questions.ts');

export function approvalCommands(program: Command, runs: Action): void {
  const approvals = commandGroup(program, 'approvals', 'list calls that wait for a person, and decide on them', [
    'pawl approvals',
    'pawl approvals approve e0.…',
  ]);
  const ls = command(approvals, 'ls', 'list approvals that are pending', ['pawl approvals ls --state all']);
  jsonOption(
    limitOption(ls).addOption(
      new Option('--state <state>', 'only approvals in this state')
        .choices([...APPROVAL_STATES, 'all'])
        .default('pending'),
    ),
  ).action(runs(approvalsModule, 'listApprovals'));
  const show = command(approvals, 'show', 'describe one approval', ['pawl approvals show e0.…']);
  jsonOption(show.argument('<id>', 'ID of the approval, or of its call')).action(runs(approvalsModule, 'showApproval'));
  const deciding = (name: 'approve' | 'deny', description: string, examples: readonly string[]) =>
    jsonOption(
      command(approvals, name, description, examples)
        .argument('<id>', 'ID of the approval, or of its call')
        .option('--digest <digest>', 'decide only if the approval still has this digest (default: its present one)')
        .option('--reason <text>', 'shown to the caller'),
    ).action(runs(approvalsModule, 'decideApproval', name));
  deciding('approve', 'let a call run, once', ['pawl approvals approve e0.… --remember'])
    .option('--params <json>', 'run with these parameters instead: JSON, @FILE, or - for standard input')
    .option('--remember', 'create a standing approval: later calls of this kind in the session run, too');
  deciding('deny', 'end a call before it runs', ['pawl approvals deny e0.… --reason "not on a Friday"']);
  const remembered = command(approvals, 'remembered', 'list the standing approvals of a session', [
    'pawl approvals remembered trip',
  ]);
  jsonOption(remembered.argument('<session>')).action(runs(approvalsModule, 'listStandingApprovals'));
  const forget = command(approvals, 'forget', 'revoke a standing approval of a session', [
    'pawl approvals forget trip e0.…',
  ]);
  jsonOption(forget.argument('<session>').argument('<id>', 'ID of the approval that created it')).action(
    runs(approvalsModule, 'revokeStandingApproval'),
  );
}

export function questionCommands(program: Command, runs: Action): void {
  const questions = commandGroup(program, 'questions', 'list questions of tools, and answer them', [
    'pawl questions',
    'pawl questions answer e0.… yes',
  ]);
  const ls = command(questions, 'ls', 'list questions that wait for an answer', ['pawl questions ls']);
  jsonOption(limitOption(ls)).action(runs(questionsModule, 'listQuestions'));
  jsonOption(
    command(questions, 'answer', 'give the answer, once', ['pawl questions answer e0.… yes'])
      .argument('<id>', 'ID of the question')
      .argument('<answer>', 'value of an option or, where that is allowed, any text'),
  ).action(runs(questionsModule, 'answerQuestion'));
  jsonOption(
    command(questions, 'dismiss', 'end a question without an answer', ['pawl questions dismiss e0.…']).argument(
      '<id>',
      'ID of the question',
    ),
  ).action(runs(questionsModule, 'dismissQuestion'));
}

export function policyCommands(program: Command, runs: Action): void {
  const policy = command(program, 'policy', 'explain the policy', ['pawl policy explain shell']).usage('[explain]');
  const explain = command(policy, 'explain', 'show the rule that decides on a tool’s calls', [
    'pawl policy explain shell --session trip',
    `pawl policy explain shell --params '{"command":["git","push"]}'`,
  ])
    .argument('<tool>', 'name of the tool')
    .option('--session <key>', 'session of the call (default: a main session without a channel)')
    .option('--params <json>', 'parameters of the call: JSON, @FILE, or - for standard input')
    .option('--namespace <name>', 'namespace of the tool (default: tools)')
    .option('--taint <source...>', 'possible sources of the parameters');
  jsonOption(explain).action(runs(policyModule, 'explainPolicy'));
}
