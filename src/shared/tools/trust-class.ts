/** The trust in one run's result: it is enough, or several workers must come to the same one. */
export const TRUST_CLASSES = ['BestEffort', 'ConsensusRequired'] as const;
export type TrustClass = (typeof TRUST_CLASSES)[number];

export const DEFAULT_VOTERS = 3;
