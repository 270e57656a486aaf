/** Certificates for servers of a test, by a certificate authority that this process trusts until the test ends, unless it shall not. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { onTestFinished } from 'vitest';
import { temporaryFolder } from './context.ts';

export interface Certificates {
  /** Options of `redis-server` with TLS on this port, beside the one without. */
  serverOptions(port: number): readonly string[];
  /** Parts of an address that name the authority and a client certificate of it. */
  readonly clientParts: string;
  readonly authorityPart: string;
}

/** One certificate for a name, and for no address. */
export function makeCertificates(name: string, { trusted: isTrusted = true } = {}): Certificates {
  const folder = temporaryFolder();
  const file = (of: string) => join(folder, of);
  const openssl = (...args: readonly string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=test', '-days', '2');
  openssl('req', ...key, '-keyout', 'server.key', '-out', 'server.csr', '-subj', `/CN=${name}`);
  writeFileSync(file('names'), `subjectAltName=DNS:${name}\n`);
  const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', 'names'];
  openssl('x509', '-req', '-in', 'server.csr', '-out', 'server.pem', ...by);
  const trusted = getCACertificates('default');
  if (isTrusted) setDefaultCACertificates([...trusted, readFileSync(file('ca.pem'), 'utf8')]);
  onTestFinished(() => setDefaultCACertificates(trusted));
  const files = ['--tls-cert-file', file('server.pem'), '--tls-key-file', file('server.key')];
  const trust = ['--tls-ca-cert-file', file('ca.pem'), '--tls-auth-clients', 'no'];
  return {
    serverOptions: (port) => ['--tls-port', String(port), ...files, ...trust],
    authorityPart: `ca=${file('ca.pem')}`,
    clientParts: `cert=${file('server.pem')}&key=${file('server.key')}`,
  };
}
