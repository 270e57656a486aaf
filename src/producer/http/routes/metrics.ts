/** `GET /metrics`. */
import { route } from '../core/route.ts';

export const metricsRoute = route('get /metrics', {
  operationId: 'getMetrics',
  permission: 'oversee',
  summary: "The whole fleet's metrics, at most 10 s old, in Prometheus' text format.",
  responses: { 200: ['Metrics', 'text/plain'] },
  async handle({ fleet }) {
    const { contentType, text } = await fleet.text('fleet');
    return { status: 200, body: text, headers: { 'Content-Type': contentType } };
  },
});
