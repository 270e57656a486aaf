/** How many schedules the models look at: `npm test` a part of what `npm run test:slow` does, which is the same seed's beginning. */
export const SEARCHES: readonly { readonly schedules: number; readonly tags: string[] }[] = [
  { schedules: 300, tags: [] },
  // PAWL_TEST_SCHEDULES=100000 looks further.
  { schedules: Number(process.env['PAWL_TEST_SCHEDULES'] ?? 10_000), tags: ['slow'] },
];
export const SEED = Number(process.env['PAWL_TEST_SEED'] ?? 1);
