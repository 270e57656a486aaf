/**
 * What a shell would run of a text, as far as that can be told without running it (C23): the words of each simple command. Nothing is
 * expanded. From the first word on that only the shell can tell, a command may go on in any way; where the text runs what it has made
 * by itself, it may be any command.
 */

export interface SimpleCommand {
  readonly words: readonly string[];
  /** Behind these words may stand any others, or none. */
  readonly open: boolean;
}

export interface CommandText {
  readonly commands: readonly SimpleCommand[];
  /** Words and nothing else: no variable is set, nothing is read from a file or written to one. */
  readonly plain: boolean;
}

/** Nothing is known of it. */
export const ANY_COMMAND: SimpleCommand = { words: [], open: true };
const UNREADABLE: CommandText = { commands: [ANY_COMMAND], plain: false };

/** Words of the shell itself behind which another command stands, or the text of one. */
const SHELL_WORDS = new Set(
  `! . alias builtin case command compgen complete coproc do elif else esac eval exec fi for function if in mapfile readarray select
  source then time trap until while`.split(/\s+/),
);
const ENDS_COMMAND = /[;&|\n]/;
/** What becomes of a word with one of these, the shell and its folder say. */
const EXPANDS = /[$*?[{}~]/;
/** A variable, or a dollar that means itself. All else behind it may be a command, or quotes with rules of their own. */
const VARIABLE = /\$(?:\w|[@*#?$!-]|\{\w+\}|(?=[\s;&|"]|$))/y;
const REDIRECTION = />>|>[|&]|<[&>]|[<>]/y;
const ASSIGNMENT = /^[A-Za-z_]\w*\+?=/;

/** As the shells of the family `sh` read it. */
export function readCommandText(text: string): CommandText {
  const reading = new Reading();
  for (let at = 0; at < text.length; ) {
    const next = reading.take(text, at);
    if (next === undefined) return UNREADABLE;
    at = next;
  }
  return reading.end();
}

class Reading {
  readonly #commands: SimpleCommand[] = [];
  #plain = true;
  #words: string[] = [];
  #open = false;
  /** The word that is being read; undefined between two. */
  #word: string | undefined;
  #expands = false;
  #quoted = false;
  /** The next word is the file of a redirection. */
  #redirects = false;

  /** Where to go on; undefined where the text cannot be read. */
  take(text: string, at: number): number | undefined {
    const char = text[at] as string;
    if (char === "'" || char === '"') return this.#quote(text, at);
    if (char === '\\') return this.#escape(at);
    if (char === '<' || char === '>') return this.#redirect(text, at);
    if ('`()'.includes(char) || (char === '$' && !isVariable(text, at))) return undefined;
    if (char === '#' && this.#word === undefined) {
      const end = text.indexOf('\n', at);
      return end === -1 ? text.length : end;
    }
    if (char === ' ' || char === '\t') this.#endWord();
    else if (ENDS_COMMAND.test(char)) this.#endCommand();
    else this.#add(char, EXPANDS.test(char));
    return at + 1;
  }

  end(): CommandText {
    this.#endCommand();
    return { commands: this.#commands, plain: this.#plain };
  }

  #add(text: string, expands: boolean): void {
    this.#word = (this.#word ?? '') + text;
    this.#expands ||= expands;
  }

  #quote(text: string, at: number): number | undefined {
    const double = text[at] === '"';
    const closing = double ? closingQuote(text, at) : text.indexOf("'", at + 1);
    if (closing === -1) return undefined;
    for (let inside = at + 1; double && inside < closing; inside += 1)
      if (text[inside] === '`' || (text[inside] === '$' && !isVariable(text, inside))) return undefined;
    const content = text.slice(at + 1, closing);
    // Of a text in single quotes, some words of the shell run what looks like a substitution.
    this.#add(content, (double ? /[$\\]/ : /`|\$\(/).test(content));
    this.#quoted = true;
    return closing + 1;
  }

  /** The character behind it means itself, or is the end of a line that goes on. */
  #escape(at: number): number {
    this.#add('', true);
    return at + 2;
  }

  #redirect(text: string, at: number): number | undefined {
    // What follows is a text.
    if (text.startsWith('<<', at)) return undefined;
    // `2>`: the number of the file, and no word.
    if (!this.#quoted && /^\d+$/.test(this.#word ?? '')) this.#word = undefined;
    this.#endWord();
    this.#plain = false;
    this.#redirects = true;
    REDIRECTION.lastIndex = at;
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
    if (expands || (isFirst && SHELL_WORDS.has(word))) this.#open = true;
    // What stands behind words that are not known stands nobody knows where.
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

/** Of the double quote at `from`; -1 when it is never closed. */
function closingQuote(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1;
    else if (text[at] === '"') return at;
  }
  return -1;
}

function isVariable(text: string, at: number): boolean {
  VARIABLE.lastIndex = at;
  return VARIABLE.test(text);
}
