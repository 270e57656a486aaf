/** `/v1/tools/{name}`: declaring, switching and removing tools while the system runs. */
import { z } from 'zod';
import {
  type DeclaredTool,
  declaredToolSchema,
  type RegistryRecord,
} from '../../../shared/connectors/declared-tool.ts';
import { invalidPart, PawlError } from '../../../shared/errors/failure.ts';
import { toolNamed } from '../../../shared/tools/tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import { requireTrustedKeysFor } from '../../operations/signing-check.ts';
import type { ChangeOptions } from '../../tools/registry.ts';
import { type Caller, permissionsOf } from '../core/access.ts';
import { type Route, type RouteResponse, route } from '../core/route.ts';
import { toolView } from '../core/views.ts';
import { callerName } from './approvals.ts';

const conditionHeaders = z.object({ 'if-match': z.string().optional(), 'if-none-match': z.string().optional() });
type Conditions = z.output<typeof conditionHeaders>;

const NAME_FORMAT = '`{name}` is `name` or `namespace.name`.';

export const registryRoutes: readonly Route[] = [
  route('get /v1/tools/{name}', {
    operationId: 'getTool',
    permission: 'use',
    summary: `One tool; for an admin with its declaration. ${NAME_FORMAT}`,
    responses: { 200: ['The tool', 'ToolStanding'] },
    async handle({ pawl, path, caller }) {
      const name = path.name;
      const { tools } = await pawl.catalogue();
      const published = toolNamed(tools, name);
      const spec = await pawl.registry.read(
        published === undefined ? name : `${published.namespace}.${published.name}`,
      );
      if (published === undefined && spec === undefined)
        throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(name)}.`);
      return {
        status: 200,
        headers: etagHeader(spec),
        body: {
          ...(published === undefined ? {} : toolView(published)),
          enabled: spec?.enabled ?? true,
          ...(spec !== undefined && { revision: spec.revision, kind: spec.kind }),
          ...(spec === undefined || !permissionsOf(caller).includes('administer') ? {} : { spec }),
        },
      };
    },
  }),
  route('put /v1/tools/{name}', {
    operationId: 'declareTool',
    permission: 'administer',
    summary: `Declares a tool, or replaces its declaration (If-Match: its revision; If-None-Match: * for a new one). ${NAME_FORMAT}`,
    headers: conditionHeaders,
    body: z.looseObject({}),
    bodySchema: z.toJSONSchema(declaredToolSchema, { io: 'input' }),
    responses: { 200: ['Replaced', 'RegistryRecord'], 201: ['Declared', 'RegistryRecord'] },
    async handle({ pawl, path, headers, body, caller }) {
      const { name, namespace, ...fields } = body;
      checkName(path.name, name, namespace);
      await requireTrustedKeysFor(pawl);
      const spec = withoutRevision(fields) as DeclaredTool;
      const { created, record, changes } = await pawl.registry.put(path.name, spec, changeOptions(headers, caller));
      return recordResponse(created ? 201 : 200, record, { changes });
    },
  }),
  route('patch /v1/tools/{name}', {
    operationId: 'switchTool',
    permission: 'administer',
    summary: `Switches a tool off or on for the whole fleet, the workers' own tools included. ${NAME_FORMAT}`,
    headers: conditionHeaders,
    body: z
      .strictObject({ enabled: z.boolean().optional(), mutable: z.boolean().optional() })
      .refine(({ enabled, mutable }) => enabled !== undefined || mutable !== undefined, 'needs enabled or mutable'),
    responses: { 200: ['The record', 'RegistryRecord'] },
    async handle({ pawl, path, headers, body: { enabled, mutable }, caller }) {
      await requireTrustedKeysFor(pawl);
      const switches = defined({ enabled, mutable });
      return recordResponse(200, await pawl.registry.patch(path.name, switches, changeOptions(headers, caller)));
    },
  }),
  route('delete /v1/tools/{name}', {
    operationId: 'removeTool',
    permission: 'administer',
    summary: `Removes a declaration. ${NAME_FORMAT}`,
    headers: conditionHeaders,
    responses: { 204: 'Removed' },
    async answer({ pawl, path, headers, caller }) {
      await requireTrustedKeysFor(pawl);
      await pawl.registry.remove(path.name, changeOptions(headers, caller));
    },
  }),
  route('get /v1/tools/{name}/revisions', {
    operationId: 'listToolRevisions',
    permission: 'administer',
    summary: `Its revisions, the newest first. ${NAME_FORMAT}`,
    responses: { 200: ['Revisions', 'RevisionList'] },
    answer: async ({ pawl, path }) => ({ revisions: await pawl.registry.history(path.name) }),
  }),
  route('post /v1/tools/{name}/rollback', {
    operationId: 'rollBackTool',
    permission: 'administer',
    summary: `Makes an earlier revision the newest again. ${NAME_FORMAT}`,
    headers: conditionHeaders,
    body: z.strictObject({ revision: z.number().int().min(1) }),
    responses: { 200: ['The record', 'RegistryRecord'] },
    async handle({ pawl, path, headers, body, caller }) {
      await requireTrustedKeysFor(pawl);
      const record = await pawl.registry.rollback(path.name, body.revision, changeOptions(headers, caller));
      return recordResponse(200, record);
    },
  }),
];

function recordResponse(status: number, record: RegistryRecord, extraFields: object = {}): RouteResponse {
  return { status, headers: etagHeader(record), body: { ...record, ...extraFields } };
}

function etagHeader(record: RegistryRecord | undefined): Record<string, string> {
  return record === undefined ? {} : { ETag: `"${record.revision}"` };
}

/** Reads `If-Match: "3"`, or `*` for any existing revision, and `If-None-Match: *` for none. Throws `CONTRACT_INVALID`. */
function changeOptions({ 'if-match': match, 'if-none-match': noneMatch }: Conditions, caller: Caller): ChangeOptions {
  if (noneMatch !== undefined && noneMatch !== '*') throw invalidCondition('if-none-match', '*', noneMatch);
  const by = callerName(caller);
  if (noneMatch === '*') return { by, ifRevision: 0 };
  if (match === undefined) return { by };
  if (match === '*') return { by, ifRevision: 'any' };
  const revision = /^(?:W\/)?"?(\d+)"?$/.exec(match)?.[1];
  if (revision === undefined)
    throw invalidCondition('if-match', 'the revision in quotes, as in the ETag header', match);
  return { by, ifRevision: Number(revision) };
}

function invalidCondition(header: string, expected: string, actual: string): PawlError {
  return invalidPart(`The header ${header}`, header, `must be ${expected}; got ${startOf(actual, 100)}`);
}

/** A client may write back a body that it got from `GET`. Its revision is ignored: `If-Match` names the expected one. */
function withoutRevision({
  revision,
  updatedAtMs,
  updatedBy,
  definition,
  ...spec
}: Readonly<Record<string, unknown>>): object {
  return spec;
}

/** The body may repeat the name in the path, as the response of `GET` does. Throws `CONTRACT_INVALID` for another name. */
function checkName(requestedName: string, name: unknown, namespace: unknown): void {
  const dot = requestedName.lastIndexOf('.');
  const differs =
    (name !== undefined && name !== requestedName && name !== requestedName.slice(dot + 1)) ||
    (namespace !== undefined && namespace !== (dot === -1 ? 'tools' : requestedName.slice(0, dot)));
  const got = JSON.stringify([namespace, name]);
  if (differs) throw invalidPart('The name', 'name', `must be ${requestedName}, as in the path; got ${got}`);
}
