/**
 * The operator's page at `/`: plain files of `dashboards/page`, read once. The files hold no data, so they need no token. Their data
 * comes from the API, which needs one.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type { Express } from 'express';

const FOLDER = new URL('../../../dashboards/page/', import.meta.url);
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
};
/** The page loads only its own files, and talks only to this server. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'";

export function mountPage(app: Express): void {
  for (const name of readdirSync(FOLDER)) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    const content = readFileSync(new URL(name, FOLDER));
    app.get(name === 'index.html' ? '/' : `/page/${name}`, (_request, response) => {
      response
        .set({ 'Content-Type': type, 'Content-Security-Policy': POLICY, 'Cache-Control': 'no-cache' })
        .end(content);
    });
  }
}
