/** Whether one run's result is good enough, or several workers have to come to the same one. */
export const TRUST_CLASSES = ['BestEffort', 'ConsensusRequired'] as const;
export type TrustClass = (typeof TRUST_CLASSES)[number];

export const DEFAULT_VOTERS = 3;
