/**
 * Authentication and permissions. Without tokens the server accepts requests of this machine only. Otherwise each request carries a
 * token, whose role and tenant limit its permissions.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIPv4 } from 'node:net';
import type { ApiRole, ApiToken, Settings } from '../../../shared/config/config.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { HttpError } from './errors.ts';

export interface Caller {
  /** Stable for one token; the token cannot be computed from it. */
  readonly id: string;
  readonly role: ApiRole;
  /** A caller with a tenant sees nothing of other tenants. */
  readonly tenantId?: string;
}

/**
 * `use`: calls, sessions, tools · `decide`: approve and deny · `operate`: resolve calls in doubt · `oversee`: the whole fleet, so never
 * with a tenant's token · `administer`: change the tools of all tenants, likewise · `read`: descriptions.
 */
export type Permission = 'use' | 'decide' | 'operate' | 'oversee' | 'administer' | 'read';

const ROLES: Readonly<Record<Permission, readonly ApiRole[]>> = {
  use: ['agent', 'operator', 'admin'],
  decide: ['approver', 'operator', 'admin'],
  operate: ['operator', 'admin'],
  oversee: ['operator', 'admin'],
  administer: ['admin'],
  read: ['agent', 'approver', 'operator', 'admin'],
};

export function permissionsOf(caller: Caller): Permission[] {
  const permissions = Object.keys(ROLES) as Permission[];
  return permissions.filter((permission) => permissionRefusal(caller, permission) === undefined);
}

/** Throws `PERMISSION_DENIED`. */
export function checkPermission(caller: Caller, permission: Permission): void {
  const refusal = permissionRefusal(caller, permission);
  if (refusal !== undefined) throw new PawlError('PERMISSION_DENIED', refusal);
}

function permissionRefusal({ role, tenantId }: Caller, permission: Permission): string | undefined {
  if (!ROLES[permission].includes(role))
    return `A token of role ${role} may not do that; it takes one of ${ROLES[permission].join(', ')}.`;
  if (tenantId !== undefined && (permission === 'oversee' || permission === 'administer'))
    return 'This concerns all tenants; it takes a token without a tenant.';
  return undefined;
}

/** Throws `PERMISSION_DENIED` when something belongs to another tenant than the caller's, or to none. */
export function checkTenant(caller: Caller, tenantId: string | undefined, subject: string): void {
  if (!seesTenant(caller, tenantId))
    throw new PawlError('PERMISSION_DENIED', `${subject} does not belong to this token's tenant.`);
}

export function seesTenant(caller: Caller, tenantId: string | undefined): boolean {
  return caller.tenantId === undefined || caller.tenantId === tenantId;
}

/** Finds the caller of a request, or refuses it with `UNAUTHENTICATED` or `PERMISSION_DENIED`. */
type Authenticate = (request: IncomingMessage, options: { readonly browser: boolean }) => Caller;

export function createAuthenticator(tokens: readonly ApiToken[]): Authenticate {
  if (tokens.length === 0) {
    return (request) => {
      checkLocal(request);
      return { id: 'local', role: 'admin' };
    };
  }
  const candidates = tokens.map(({ token, role, tenantId }) => ({
    digest: digestOf(token),
    caller: { id: digestOf(token).toString('hex').slice(0, 16), role, ...(tenantId !== undefined && { tenantId }) },
  }));
  return (request, { browser }) => {
    const digest = digestOf(credentials(request.headers.authorization, browser) ?? '');
    let caller: Caller | undefined;
    // Every token is compared in constant time, so that the delay reveals nothing about a guess.
    for (const candidate of candidates) if (timingSafeEqual(candidate.digest, digest)) caller = candidate.caller;
    if (caller === undefined)
      throw new HttpError('UNAUTHENTICATED', 'A valid token is needed: Authorization: Bearer TOKEN.', {
        headers: { 'WWW-Authenticate': `${browser ? 'Basic' : 'Bearer'} realm="pawl"` },
      });
    return caller;
  };
}

/** A browser cannot send `Bearer` by itself, so pages also accept the token as the password of `Basic`. */
function credentials(header: string | undefined, browser: boolean): string | undefined {
  const [, scheme = '', value = ''] = /^(\S+) +(\S+) *$/.exec(header ?? '') ?? [];
  if (scheme.toLowerCase() === 'bearer') return value;
  if (!browser || scheme.toLowerCase() !== 'basic') return undefined;
  const pair = Buffer.from(value, 'base64').toString('utf8');
  return pair.slice(pair.indexOf(':') + 1);
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/**
 * Guards against DNS rebinding: a foreign page can make a browser on this machine send requests here, under a host name that resolves
 * to 127.0.0.1. Such requests carry that name, or the page's origin.
 */
function checkLocal(request: IncomingMessage): void {
  const { host, origin } = request.headers;
  if (host === undefined || !isLoopback(hostnameOf(`http://${host}`)))
    throw new PawlError('PERMISSION_DENIED', 'Without tokens this server answers only to localhost.');
  if (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`)
    throw new PawlError('PERMISSION_DENIED', 'Without tokens this server does not answer pages of other origins.');
}

function hostnameOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname : '';
}

/** Throws `CONFIGURATION` when a server without tokens would be reachable from other machines, or from programs in the sandbox. */
export function checkBinding(
  host: string,
  { apiTokens, sandboxNetwork }: Pick<Settings, 'apiTokens' | 'sandboxNetwork'>,
): void {
  if (apiTokens.length > 0) return;
  if (!isLoopback(host))
    throw new PawlError(
      'CONFIGURATION',
      `Without PAWL_API_TOKENS the HTTP server binds to loopback only; got the host ${JSON.stringify(host)}. ` +
        'Use 127.0.0.1, or set tokens (token:role, comma separated).',
    );
  if (sandboxNetwork === 'on')
    throw new PawlError(
      'CONFIGURATION',
      'With PAWL_SANDBOX_NETWORK=on programs in the sandbox reach this HTTP server, and could approve their own calls. Set PAWL_API_TOKENS (token:role, comma separated), or turn their network off.',
    );
}

function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}
