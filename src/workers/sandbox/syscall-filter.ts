/**
 * A seccomp filter, in the form that bubblewrap's `--seccomp` takes. The kernel refuses these to programs in the sandbox,
 * because no mount prevents them:
 *
 * - sockets of all kinds but the internet's and netlink's: by path (Docker's, a database's, an ssh agent's), to the machine's host, and to
 *   rarely used parts of the kernel, such as its cryptography (`AF_ALG`); pairs of connected sockets stay allowed
 * - further user namespaces, in which a program would be root and could attack the kernel's rarely used parts
 * - files with a set-user-ID or set-group-ID bit, which would stay in the workspace and run as the worker's user
 * - io_uring, whose requests no filter sees
 * - the kernel's keys, which all programs of a user share, and interfaces to the kernel itself that no ordinary program uses
 */

interface SystemCalls {
  /** `AUDIT_ARCH_…`. */
  readonly architecture: number;
  /** System calls of another width have this bit set. */
  readonly foreignBit?: number;
  readonly numbers: Readonly<Partial<Record<keyof typeof RULES, number>>>;
}

interface Test {
  readonly argument: number;
  readonly differsFrom?: number;
  readonly hasAnyOf?: number;
}

interface Rule {
  readonly errno: number;
  /** Each list refuses the call when all of its tests hold. Without a list the call is always refused. */
  readonly when?: readonly (readonly Test[])[];
}

const EPERM = 1;
/** Libraries react to it by falling back to the older system call. */
const ENOSYS = 38;
/** `AF_INET`, `AF_INET6`, and `AF_NETLINK`, through which the C library reads the machine's addresses. */
const SOCKET_FAMILIES = [2, 10, 16];
/** A bit of `SOCK_DGRAM` and `SOCK_RAW` alone. A datagram socket of a pair can still send to a path. */
const DATAGRAM = 2;
const CLONE_NEWUSER = 0x1000_0000;
const SET_ID_BITS = 0o6000;
/** `O_CREAT` and `__O_TMPFILE`. Without one of them there is no mode, and the argument holds anything. */
const CREATES = 0o100 | 0o20_000_000;

const setsId = (argument: number): Rule => ({ errno: EPERM, when: [[{ argument, hasAnyOf: SET_ID_BITS }]] });
const createsSetId = (flags: number): Rule => ({
  errno: EPERM,
  when: [
    [
      { argument: flags, hasAnyOf: CREATES },
      { argument: flags + 1, hasAnyOf: SET_ID_BITS },
    ],
  ],
});
const createsUserNamespace: Rule = { errno: EPERM, when: [[{ argument: 0, hasAnyOf: CLONE_NEWUSER }]] };

const NEVER: Rule = { errno: EPERM };

const RULES = {
  socket: { errno: EPERM, when: [SOCKET_FAMILIES.map((differsFrom) => ({ argument: 0, differsFrom }))] },
  socketpair: { errno: EPERM, when: [[{ argument: 1, hasAnyOf: DATAGRAM }]] },
  clone: createsUserNamespace,
  unshare: createsUserNamespace,
  // Its arguments lie in memory, which a filter cannot read.
  clone3: { errno: ENOSYS },
  openat2: { errno: ENOSYS },
  io_uring_setup: { errno: ENOSYS },
  add_key: NEVER,
  request_key: NEVER,
  keyctl: NEVER,
  bpf: NEVER,
  perf_event_open: NEVER,
  userfaultfd: NEVER,
  chmod: setsId(1),
  fchmod: setsId(1),
  fchmodat: setsId(2),
  fchmodat2: setsId(2),
  creat: setsId(1),
  mknod: setsId(1),
  mknodat: setsId(2),
  open: createsSetId(1),
  openat: createsSetId(2),
} as const satisfies Readonly<Record<string, Rule>>;

const SYSTEM_CALLS: Readonly<Partial<Record<NodeJS.Architecture, SystemCalls>>> = {
  x64: {
    architecture: 0xc000_003e,
    foreignBit: 0x4000_0000,
    numbers: {
      socket: 41,
      socketpair: 53,
      clone: 56,
      unshare: 272,
      clone3: 435,
      openat2: 437,
      io_uring_setup: 425,
      add_key: 248,
      request_key: 249,
      keyctl: 250,
      bpf: 321,
      perf_event_open: 298,
      userfaultfd: 323,
      chmod: 90,
      fchmod: 91,
      fchmodat: 268,
      fchmodat2: 452,
      creat: 85,
      mknod: 133,
      mknodat: 259,
      open: 2,
      openat: 257,
    },
  },
  arm64: {
    architecture: 0xc000_00b7,
    numbers: {
      socket: 198,
      socketpair: 199,
      clone: 220,
      unshare: 97,
      clone3: 435,
      openat2: 437,
      io_uring_setup: 425,
      add_key: 217,
      request_key: 218,
      keyctl: 219,
      bpf: 280,
      perf_event_open: 241,
      userfaultfd: 282,
      fchmod: 52,
      fchmodat: 53,
      fchmodat2: 452,
      mknodat: 33,
      openat: 56,
    },
  },
};

// The kernel's classic BPF has instructions of eight bytes, which jump forward only.

type Instruction = readonly [code: number, whenTrue: number, whenFalse: number, value: number];

const load = (offset: number): Instruction => [0x20, 0, 0, offset];
const returnValue = (value: number): Instruction => [0x06, 0, 0, value];
const refuse = (errno: number): Instruction => returnValue(0x0005_0000 | errno);
const ALLOW = returnValue(0x7fff_0000);
const EQUALS = 0x15;
const AT_LEAST = 0x35;
const HAS_ANY_OF = 0x45;

const NUMBER_OFFSET = 0;
const ARCHITECTURE_OFFSET = 4;
/** The offset of an argument's lower half, on machines that store it first. */
const argumentOffset = (index: number): number => 16 + 8 * index;

/** Returns the filter for this machine's architecture, or undefined where Pawl has none. */
export function syscallFilter(architecture: NodeJS.Architecture = process.arch): Buffer | undefined {
  const calls = SYSTEM_CALLS[architecture];
  if (calls === undefined) return undefined;
  const instructions: readonly Instruction[] = [
    load(ARCHITECTURE_OFFSET),
    [EQUALS, 1, 0, calls.architecture],
    // System calls of another architecture have other numbers.
    refuse(EPERM),
    ...(calls.foreignBit === undefined
      ? []
      : [load(NUMBER_OFFSET), [AT_LEAST, 0, 1, calls.foreignBit] as const, refuse(ENOSYS)]),
    ...Object.entries(calls.numbers).flatMap(([name, number]) =>
      instructionsFor(RULES[name as keyof typeof RULES], number),
    ),
    ALLOW,
  ];
  const bytes = Buffer.alloc(instructions.length * 8);
  for (const [index, [code, whenTrue, whenFalse, value]] of instructions.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(whenTrue, index * 8 + 2);
    bytes.writeUInt8(whenFalse, index * 8 + 3);
    bytes.writeUInt32LE(value, index * 8 + 4);
  }
  return bytes;
}

function instructionsFor({ errno, when = [[]] }: Rule, number: number): readonly Instruction[] {
  return when.flatMap((tests) => {
    const body = [
      ...tests.flatMap((test, index) => {
        // Jumps past the remaining tests and the refusal.
        const jumpOffset = 2 * (tests.length - index - 1) + 1;
        const { argument, differsFrom, hasAnyOf = 0 } = test;
        const compare: Instruction =
          differsFrom === undefined ? [HAS_ANY_OF, 0, jumpOffset, hasAnyOf] : [EQUALS, jumpOffset, 0, differsFrom];
        return [load(argumentOffset(argument)), compare];
      }),
      refuse(errno),
    ];
    return [load(NUMBER_OFFSET), [EQUALS, 0, body.length, number] as const, ...body];
  });
}
