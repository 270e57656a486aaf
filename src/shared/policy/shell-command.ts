/**
 * Reads the simple commands that a shell would run for a text, without running it and without expanding anything. From the first word that
 * only the shell can determine, a command is open: any words may follow. A text that runs its own output may run any command.
 */
import { words } from '../util/text/words.ts';

export interface SimpleCommand {
  readonly words: readonly string[];
  /** Whether any other words may follow these. */
  readonly open: boolean;
}

interface CommandText {
  readonly commands: readonly SimpleCommand[];
  /** Whether the text is words only: it sets no variable and neither reads nor writes a file. */
  readonly plain: boolean;
}

/** A command that cannot be determined. */
export const ANY_COMMAND: SimpleCommand = { words: [], open: true };
const UNREADABLE: CommandText = { commands: [ANY_COMMAND], plain: false };

/** Shell keywords and builtins that are followed by another command or its text. */
const SHELL_WORDS = words(`
  ! . alias builtin case command compgen complete coproc do elif else esac eval exec fi for function if in mapfile readarray select
  source then time trap until while
`);
const ENDS_COMMAND = /[;&|\n]/;
/** Only the shell can expand a word with one of these. */
const EXPANDS = /[$*?[{}~]/;
/** A variable, or a literal dollar. Anything else after a dollar may be a command, or quotes with their own rules. */
const VARIABLE = /\$(?:\w|[@*#?$!-]|\{\w+\}|(?=[\s;&|"]|$))/y;
const REDIRECTION = />>|>[|&]|<[&>]|[<>]/y;
const ASSIGNMENT = /^[A-Za-z_]\w*\+?=/;

/** Reads a text as shells of the `sh` family do. */
export function readCommandText(text: string): CommandText {
  const reader = new CommandReader();
  for (let index = 0; index < text.length; ) {
    const next = reader.readCharacter(text, index);
    if (next === undefined) return UNREADABLE;
    index = next;
  }
  return reader.end();
}

class CommandReader {
  readonly #commands: SimpleCommand[] = [];
  #plain = true;
  #words: string[] = [];
  #open = false;
  /** The word that is being read; undefined between words. */
  #word: string | undefined;
  #expands = false;
  #quoted = false;
  /** Whether the next word is the file of a redirection. */
  #redirects = false;

  /** The index where to continue; undefined where the text cannot be read. */
  readCharacter(text: string, index: number): number | undefined {
    const char = text[index] as string;
    if (char === "'" || char === '"') return this.#quote(text, index);
    if (char === '\\') return this.#escape(index);
    if (char === '<' || char === '>') return this.#redirect(text, index);
    if ('`()'.includes(char) || (char === '$' && !isVariable(text, index))) return undefined;
    if (char === '#' && this.#word === undefined) {
      const end = text.indexOf('\n', index);
      return end === -1 ? text.length : end;
    }
    if (char === ' ' || char === '\t') this.#endWord();
    else if (ENDS_COMMAND.test(char)) this.#endCommand();
    else this.#append(char, EXPANDS.test(char));
    return index + 1;
  }

  end(): CommandText {
    this.#endCommand();
    return { commands: this.#commands, plain: this.#plain };
  }

  #append(text: string, expands: boolean): void {
    this.#word = (this.#word ?? '') + text;
    this.#expands ||= expands;
  }

  #quote(text: string, index: number): number | undefined {
    const isDouble = text[index] === '"';
    const closing = isDouble ? closingQuote(text, index) : text.indexOf("'", index + 1);
    if (closing === -1) return undefined;
    for (let position = index + 1; isDouble && position < closing; position += 1)
      if (text[position] === '`' || (text[position] === '$' && !isVariable(text, position))) return undefined;
    const content = text.slice(index + 1, closing);
    // A text in single quotes can still be run by some shell words, if it looks like a substitution.
    this.#append(content, (isDouble ? /[$\\]/ : /`|\$\(/).test(content));
    this.#quoted = true;
    return closing + 1;
  }

  /** The escaped character is literal, or a line break that continues the line. */
  #escape(index: number): number {
    this.#append('', true);
    return index + 2;
  }

  #redirect(text: string, index: number): number | undefined {
    // A here-document follows.
    if (text.startsWith('<<', index)) return undefined;
    // A number before the redirection, as in `2>`, is a file descriptor and not a word.
    if (!this.#quoted && /^\d+$/.test(this.#word ?? '')) this.#word = undefined;
    this.#endWord();
    this.#plain = false;
    this.#redirects = true;
    REDIRECTION.lastIndex = index;
    REDIRECTION.test(text);
    return REDIRECTION.lastIndex;
  }

  #endWord(): void {
    const word = this.#word;
    const expands = this.#expands;
    this.#word = undefined;
    this.#expands = false;
    this.#quoted = false;
    if (word === undefined) return;
    if (this.#redirects) {
      this.#redirects = false;
      return;
    }
    const isFirst = this.#words.length === 0 && !this.#open;
    if (isFirst && ASSIGNMENT.test(word)) {
      this.#plain = false;
      return;
    }
    if (expands || (isFirst && SHELL_WORDS.includes(word))) this.#open = true;
    // The position of a word after unknown words is unknown.
    if (this.#open) this.#plain = false;
    else this.#words.push(word);
  }

  #endCommand(): void {
    this.#endWord();
    this.#redirects = false;
    if (this.#words.length > 0 || this.#open) this.#commands.push({ words: this.#words, open: this.#open });
    this.#words = [];
    this.#open = false;
  }
}

/** The index of the quote that closes the one at `from`; -1 when it is never closed. */
function closingQuote(text: string, from: number): number {
  for (let index = from + 1; index < text.length; index += 1) {
    if (text[index] === '\\') index += 1;
    else if (text[index] === '"') return index;
  }
  return -1;
}

function isVariable(text: string, index: number): boolean {
  VARIABLE.lastIndex = index;
  return VARIABLE.test(text);
}
