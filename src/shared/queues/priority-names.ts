/** The highest priority first. Requests, settings and metrics call the priority `importance`. */
export const PRIORITIES = ['critical', 'normal', 'background'] as const;
export type Priority = (typeof PRIORITIES)[number];
