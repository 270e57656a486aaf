/** `1 worker`, `2 workers`. */
export function plural(number: number | bigint, noun: string, several = `${noun}s`): string {
  return `${number} ${Number(number) === 1 ? noun : several}`;
}
