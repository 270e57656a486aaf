/** What limits each comparison, and what was tried, as `bench/NOTES.md` says it. */

export const WORKLOAD_LIMITS = `- **One producer, 64 in flight: CPU time of all three.** Calls that come at the same time share their steps: claim, begin and
  push to a worker in one script, settle, end and publish in another. What is left for each call in Redis is 15 commands inside these (counted on
  2026-11-23): a record of about 25 fields, a job, three events for BullMQ's listeners (since 2026-11-26 off by default), a lock, the expiry, its share of the audit trail; a third of the
  scripts' time is theirs. Redis was sampled with its symbols: its log takes 9 % of it, Lua's strings 7, its collections 6, the allocator 13, and no
  function more than 7. Hand-written BullMQ has no record, no index, no fence, no trail and no signature to check; the worker, which costs less than its
  worker here, does not run BullMQ's loop any more.
- **512 in flight: what a call costs, and one step after the other.** Most calls wait for one of the worker's 64 slots, on either side. That is where
  hand-written BullMQ is at its best: its worker, which else waits for each fetch, always finds a job, and its Redis has no rest. Pawl's record,
  trail and line of a call cost as much here as anywhere, and a script for 32 calls leaves worker or Redis idle for a moment. With several
  producers, each hand-written one hears every event of all others, however many calls wait. On 2026-11-26 a call took 110 µs of the worker, 72 of
  the producer and 125 of Redis. Redis runs 0.10 scripts for a call, in them 5.0 HSET (14 µs), 3.9 HMGET (12), 2.3 EXISTS (3), and one
  each of DEL, HDEL, LREM, SET, GET and PEXPIREAT: 60 µs; the rest is Lua. Of the worker, 22 % was V8's collector, 8 % writing to the socket, 5 % the
  compression of the audit trail, and no function of Pawl's more than 2 %. Three designs were tried. A young generation of 32 instead of 16 MiB takes a
  fifth off the worker and 8 % off the call, and was kept. Claims in steps of 48 instead of 16 (−3 %) and ends in steps of 64 instead of 32
  (−1 %) were not, and a collector without helper threads changed nothing in 8 rounds. Nor did a second step of 16 or 32 ends that is sent while
  the first is in progress, on 2026-11-28: 0.76 and 0.75 times in place of 0.73, 3 runs each in turns. Audit records take a fifth of the worker: half of it to make them,
  of which their redaction is 2.5 µs each (7 before it skipped texts without a token's letters), half to chain and compress them. V8's allocations
  were sampled on that day: a worker made 102 KB of objects for a call of 200 B, a producer 45. Arguments of
  scripts are copied in one piece now, and IDs are packed in one buffer. A
  design in which steps that have nothing to wait for answer without a promise took another tenth off the worker's CPU time, nothing off the
  producer's, and left throughput as it was (0.78 and 0.78 times, rounds of the same hour). It made two answers of each step, and circuits depend on
  the number of turns of the loop: not kept. Nor were handles whose functions are made at use: 2.5 KB less, up to 5 µs of a call, and a handle that
  cannot be spread. Of the rest, a tenth each is Redis' protocol both ways, the tool's context and the audit record. What is left to
  save is the number of fields and keys that a call writes.
  On 2026-11-27 Redis was run under callgrind, whose counts no load of the machine changes. A call took 789,000 instructions and 21 commands,
  of which 5 looked whether old calls may leave the indexes. A look at 16 of them at once, one for all calls of a claim and one for all locks
  of a step left 742,000 and 14 (6.0 % less; hand-written BullMQ took nine tenths of the former); a start that looks at ten fields fewer,
  which only earlier attempts leave, another 2.7 %. Of what is left, 24 % are the commands,
  12 % the file, and 47 % Lua: its strings 9, its tables 8, its answers 9, its collector 4.5. One design tried on that
  day makes worker and Redis overlap. Traced, the worker's 64 calls run in step: two groups of 32 ends are sent within 0.3 ms of each other, Redis
  answers both at once, and each of the two rests while the other works. With one group under way at a time, the groups alternate and neither
  rests; on two cores a call then took 24 % more CPU time (worker +32, Redis +20), and throughput fell by 22 % (21 rounds at real-time priority; 17 % in another 15): not kept. A collector
  without helper threads made 2 to 4 % more calls, where two fleets of the same code differed by up to 18 % in 15 rounds: not kept.
- **One call at a time: whole steps, in code that has gone cold.** On the machine of 2026-11-22 (Intel Xeon, twice as fast) the median was 1.52 times
  hand-written BullMQ's, on that of 2026-11-23 (AMD EPYC) 1.0 times with the same code: the dearer it is to wake a process, the more a call gains from
  fewer hops. What follows was measured on the former. With 64 calls in flight Redis runs 0.09 scripts for each, here two (hand-written
  BullMQ 3.8 and 5.4): what Pawl shares elsewhere, a single call pays alone. Sockets watched on 2026-11-22, medians: the producer's code
  0.21 ms, claim in Redis 0.24, until the worker wakes 0.10, the worker's code 0.33, end in Redis 0.22, until the producer wakes 0.07. The
  two scripts take 270 µs by Redis' own clock: look and check 35, the record 18, the job, its lock and two events 27, the indices 39, the
  push 23, settle 55, end the job 21, look for a next one 15, audit 13, tell the producer and the rest 20. All three processes were sampled (\`perf\`, 6 s): 6 % of worker and producer is the kernel, a third
  V8's built-ins, a quarter compiled code, and no function has more than 3 % of its own. Of the producer, reading replies takes 16 %, the
  audit record 13, writing commands 9, the contract's check 6; of the worker, reading 16, the end's command 14, BullMQ's loop 10 (not run since), the
  audit record 8. The same producer takes 60 µs of CPU time for each of 64 calls, and 260 for one alone; the worker 134 and 390, with two reads and
  one write for a call. A core for the worker alone changes nothing in that; 30,000 calls before the measurement take a quarter off it: what
  a call runs through once is code that is not compiled yet, and not in the caches. A quarter more than hand-written BullMQ would leave
  0.6 ms of the 0.76 that a call took when the two took 0.48: no audit record, no index of calls, no context and no policy on the way.
  On 2026-11-26 Redis ran 2.06 scripts for a call alone, in them 9.2 HMGET, 5.0 EXISTS, 3.3 HSET, 3.1 ZADD, 3.0 LPUSH and 2.2 XADD: 120 of the
  scripts' 550 µs on a busy machine. One design was tried and not kept: without the PING that lets Redis serve first who waits (CPU
  time +4 %). Since 2026-11-27 the audit trail is compressed in the worker's own thread, which was left out the day before because the median stayed
  as it was: a block of 2, 16 and 64 records takes 41, 62 and 112 µs of CPU time there, and 146, 153 and 202 in another thread, so that the
  worker takes 5 to 15 % less for a call alone.
  From 2026-11-27 to 2026-11-30 the only call that runs in a worker had a script of its own for its outcome, in front of the one that ends its job. When it was
  new, the median was 4 to 5 % shorter, for 3 to 7 % more CPU time. It was measured again with a script that the outcome and the job's end share (6 runs of
  21 rounds, sides swapped each time): the shared one has 0.98 to 1.09 times the throughput, 1.02 in the middle, for 0.88 to 1.01 times the CPU time. The
  worker sends one write for a call instead of two, at 20 to 25 µs each. One call that was traced, which makes
  it slower, had 213 µs of JavaScript in the producer and 329 in the worker, and 35 to 50 µs until a process woke, four times; the claim takes 114 µs.
- **4, 16 and 64 producers: cold code again, and idle moments.** With 4 calls in flight each, a producer's calls travel in groups of about
  three (counted: 0.3 claims and 0.3 messages with results for each call), so that waking up is shared already: the kernel has 5 % of the
  producers' time. The rest is JavaScript that runs 100 times a second in each of 16 processes on two cores: a third of it V8's built-ins, a
  fifth its compilers, which begin anew in each process. For a fifth
  of the time one of the two cores is idle (scheduler's trace): half of that, the worker alone works through the calls that came together.
  A bare list shows what of this has nothing to do with what Pawl promises: on 2026-11-24 a call cost its callers 12, 111 and 594 µs with
  1, 16 and 64 producers, and its Redis 12, 38 and 73. In the same run 16 producers were dearer to Redis than one by 26 µs for the list and by 116 for
  Pawl (195 to 311), and 64 by 61 and 209: a quarter of what a call costs Pawl's Redis with one producer is 49 µs, a fifth 39, so that
  1.2 times with 64 producers would be less than what the list alone needs. The rest is smaller steps, which run 20 commands for a
  call instead of 15. Redis' growth is that of scripts for three calls instead of thirty, not of producers: one with 4 calls in flight costs Redis more for a
  call than 16 of them, whose calls end together; and where both make half as many calls a second as the many can do, 64 cost Redis hardly more than
  one (the last of the targets above). Counted by callgrind on 2026-11-22, Redis takes
  0.69 million instructions to claim and end a call when 32 go together, and 1.31 million when each goes alone: a script by itself takes
  0.31 million. A third of these are commands that do not depend on how many calls there are (a worker with room, the indices, the
  trail, the messages), and their log; nearly a half Lua's functions and tables, made anew for each run, and their collection; the rest
  arguments and answers. Each hand-written producer is also woken for every event of all others, so
  that its cost grows with their number. Two designs were tried on 2026-11-27, and not kept (11 rounds for each figure). Producers that
  leave the answers to their claims unread until results arrive, so that one wake serves both: throughput +5 and +3 %, their CPU time 0 and −5 %, and a
  refused call would learn of it late. Workers that gather ends for 1 and 2 ms, so that results travel in larger groups: throughput −9 and −13 %, CPU time −2 and +5 %.
  Sampled again, five of six
  samples of a producer's JavaScript are in code of V8's middle compiler, and one in fourteen in that of its last one. In the first
  4 s of new processes, they made 2,118 to 2,307 calls a second (3 rounds); with bytecode from Node's compile cache 2,083 to 2,234 (3), with feedback for
  V8's compilers from the first run on 1,930 and 2,010.
- **2 and 4 workers: cores, and Redis.** Each worker takes calls for itself, so that steps are shared by fewer calls. More workers help
  where cores are free, or tools wait; on a machine whose cores are taken by callers and Redis they only divide the same work.
- **4 workers, a tool of 50 ms: two cores.** 256 slots could do 5,120 calls a second. A call takes 534 µs of CPU time, so two cores can do 3,750,
  and nine tenths of the slots would need 434 µs. Each worker ends a call about every millisecond, so that two or three calls share a step instead of
  thirty: the worker takes 248 µs for a call instead of 71. Two designs were tried on 2026-11-28, 6 short runs each, in turns, on a busy machine.
  Workers that gather ends for 3 ms: 1.24 times BullMQ's throughput (1.04 to 1.35) instead of 1.09 (0.98 to 1.24), for 2 % less CPU time. Producers that gather
  claims for 3 ms: 1.06 times (0.88 to 1.45), for 9 % more. Neither was kept: a result that waits for 3 ms is a cost to each call, and
  the gain is within what the runs differ.
- **Added latency with a tool of 50 ms: Redis, and turns on two cores.** At 1,700 calls a second from one process to 4 workers, of 16 ms that a call takes
  beyond its tool, 6 pass before the tool begins and 6 after it ended, nearly all of them in waiting for Redis, which runs a script for two or three
  calls at a time; 2 are late timers, and 1 is a late call. At 700 a second it is 3.6 ms in all, 17.5 at the 99th percentile. Two designs were tried on
  2026-11-28, two runs of 5 s each, in turns, against 54 and 44 ms at the 99th percentile: steps at least 3 ms apart 78 and 74, 6 ms
  apart 70 and 74; steps that wait for half as long again as Redis' last answers took 73 and 44. Neither was kept.
- **32 and 1,024 KiB: copies.** A result of more than 4 KiB is written once, by a plain command, and fetched by whoever waits; BullMQ
  writes it twice, in a script, and sends it to every producer. Above 64 KiB it goes in parts, compressed, which costs the worker and the
  caller CPU time and spares Redis, the network and the file. From 16 producers, hand-written BullMQ takes 6,554 µs of CPU time for a
  call on 2026-11-24, Pawl 1,437, less than a quarter of it; but Pawl leaves a seventh of the cores idle, and it a sixteenth. In another run of that day the
  bare list took 544, and what Pawl does for a call of 200 B beyond the list's 167 another 636: 1,180 together, of the 1,303 that Pawl took.
  All three were sampled: of the callers a fifth is the kernel and Node's event loop, 8 % the JSON of results; of Redis 12 % the copy into its file; of the
  worker 7 % the search for what JSON escapes, and 6 % V8's counting of the text's bytes; nothing else has more than 4. Ends in
  steps of 16 or 24 make it worse (throughput −24 and −13 %). Results sent as bytes, which are counted and encoded once in place of three times,
  left all of it as it was on 2026-11-27 (CPU time −1 %, 15 rounds of 0.4 s). Of 1,024 KiB, the caller took a third to parse a text that needs no parsing:
  \`JSON.parse\` copied each part twice. A part without escapes other than line ends is taken as it stands since then (caller −30 %,
  throughput +28 %, 7 rounds). A part of 256 KiB compressed in the worker's own thread takes 1,040 µs of CPU time, in another one 1,355; but other
  cores, where there are some, then have nothing of the work: not kept.
- **Replays: one script each way.** Nothing is written but the audit record. A producer that has seen a call end asks for its record alone,
  without what a new call would need; steps of 16 let Redis and the producer work at the same time;
  what is left is the producer's own CPU time, of which the audit record took a sixth on 2026-11-26 (half of that to shorten its names, since then
  written at once), the identity an eighth, the system call of the write a sixth: contract, policy and identity are not in BullMQ's job.
  On 2026-11-27 the 64 calls were seen to run in groups of 16 and 48, between which Redis and the producer rest in turn. With the answers of each script
  handed out in a turn of the event loop of its own, two groups of 32 alternate and the producer hardly rests: the median latency fell by a tenth, but
  throughput rose by no more than 2 % (11 rounds of 2 s) and CPU time by 7 %; one producer with new calls lost 5 %: not kept. A second design
  was: a step that is full is sent at once, and no longer at the end of the turn, so that Redis works on the first calls while the producer makes
  the others. The median fell by 12 to 19 %, throughput rose by 6 to 16 % (two runs of 11 rounds), for the same CPU time. What is left to save is the producer's 22 µs for a call.
  The worker takes part too, since it chains the audit records: 4 to 25 µs for each call on 2026-11-27, by the load of the machine. Compressed in its
  own thread, in blocks of about 100, they take 1.4 µs less.
- **One key: one call.** What is measured is how callers join a call in flight, and are told. Until 2026-11-27 each of them sent a claim, and the row was
  lost (0.66 to 0.94 times). Since 2026-11-28 equal calls of one moment share one claim and its answer: 2.75 times where 0.83 was measured in
  the same hour of a busy machine. The store's 22 µs for a call, instead of 60, are those of the audit records.
- **The first 5 s of new processes: code that is not compiled yet.** With 512 in flight a worker took 338 µs of CPU time for a call in that time on 2026-11-29
  (hand-written BullMQ 141), 1,567 in the first half second, and 130 some seconds later (50). Sampled with \`perf\`, 41 % of it were V8's helper threads: its last
  compiler 14, its middle one 4, the collector and the memory that it asks for 20. Code that is compiled took 12 %, and all else the interpreter, V8's
  built-ins and the collector in the main thread. Of what a call allocates in the worker (90 KB), no function makes more than 3 KB. Two designs
  were tried on that day, each a flag of V8, in turns: its last compiler after 30,000 runs of a function instead of 3,000, and without that compiler.
  512 in flight (7 rounds): 0.56 and 0.60 times instead of 0.52. One at a time (5): 0.62 and 0.60 instead of 0.64. 4 workers (4): 1.05 and 1.04
  instead of 0.92. 16 producers (3): 1.77 and 1.66 instead of 1.74. Neither was kept: the gain lies within what the runs differ (up to 30 %), and a program
  that has Pawl in it would get V8's flags from it.
- **The first calls of new processes: a validator, and the collector.** Calls of a tool of 500 ms were made in groups of 64 (5 runs, 2026-11-29). The
  first group took 313 ms longer than the tool (hand-written BullMQ 98), and each later one 45 to 70 (48 to 75). Of the first group's 322 ms of CPU
  time in the worker, 100 were Ajv, which was loaded for it and compiled the tool's schema; of the producer's 185, 65. Both load it as soon as they are
  idle now: the first group takes 202 ms longer. One key of 1,000 callers went from 0.72 to 1.14 times, 256 slots from 0.74 to 0.92, a
  tool of 500 ms from 0.91 to 0.97. Of the worker's main thread in the first group, 89 of 232 ms are the collector now: one pass over the young generation,
  and one over the whole heap, for which the start alone is a reason to V8. Four designs were tried before, each a setting of V8, in turns: a collector in one
  thread, a young generation of at most 4 MiB, the first compiler for all functions at once, and bytecode kept on disk. One key of 1,000 callers
  (5 rounds): 0.61, 0.76, 0.58 and 0.66 times instead of 0.67. A tool of 500 ms (3): 0.94, 0.97, 0.94 and 0.92 instead of 0.92. 256 slots (2), the first two of
  them: 0.83 and 0.90 instead of 0.90. None was kept: they are a program's own to set.
- **A slow machine.** On 2026-11-27 and 28, the rows in steady state and that of 64 producers were measured while an empty Node took 112 ms to start,
  instead of 27. Short rounds of that hour gave 1.68 times with one producer, the median of 8 runs each of that day's code and of that of the other
  rows, in turns; and 0.65 to 0.76 times one call at a time. So the code was as fast as before, and Pawl loses more on a slow machine than hand-written BullMQ does.
  Six rows in steady state were measured again on 2026-11-29, on a fast one: one and 16 producers, one call at a time, replays, 512 in flight, and 32 KiB from one producer.
  From the evening of 2026-11-28 to that of the next day, each attempt asked Redis for the channel that a front door offers. Two fleets that took
  turns, one of them with the code of 2026-11-27, gave 0.88 times its calls with one producer; 0.97, 1.03 and 0.95 since that is asked ten times a second at
  most (4 rounds of 6 s after 12 s of load). The other systems in steady state were measured in between: Pawl's figures there are too low by so much.
  On 2026-11-29 the code of that evening took turns with earlier code in one run. Against that of 2026-11-27: 1.16 times with one producer, 1.06
  one call at a time, 0.98 for replays, 1.15 with 512 in flight (21 short rounds). Against that of 2026-11-25: 0.93 with one producer and 0.90 one call at a time
  (5 rounds of 6 s, after 12 s of load), 1.13 for replays and 1.02 with 32 KiB. A call takes half the bytes in the file and 105 instead of 128 µs of Redis since then, but 108
  instead of 71 of the worker. Sampled, its main thread takes 23 µs more: 6 to compress the trail and shorten its names, 5 V8's collector, 4 to search for
  more kinds of secrets, 4 to write to the socket, and no other function more than 1.5.
  On 2026-11-30, on an Intel Xeon, Redis' answers were counted: for each of 64 calls in flight the worker read 9.5 values and the producer 6.3, and 8 for a
  replay, of which ioredis' decoder takes an eighth of the worker's samples. Usual answers are one value since then, and three for a replay: 3.8 and 2.3. The
  search for secrets takes 1.9 instead of 5.1 µs for a result. In turns with the state before it, that is 0.97 times with one producer (0.91 to 1.23; medians
  4,519 and 4,318 calls a second) and 1.05 for replays (0.90 to 1.09; 20,880 and 19,714): less than such runs differ. Waiting audit records have whole
  names since that evening: a record takes 1.4 instead of 4.4 µs to write and to chain, and a call's records 310 B more of the file until they are chained.
  Since that evening secrets are looked for once and not twice, with a table of 8 KiB in place of two of 32 (1.1 instead of 1.9 µs for a result of 200 B by itself;
  in a busy worker, whose cache others share, 5 instead of 9). Against the code of 2026-11-25, in three runs with the sides
  swapped once: 0.84, 0.92 and 0.99 times with one producer, 0.88, 0.90 and 0.92 one call at a time. Two fleets of identical code gave 0.91 and 1.01. With one
  script for an outcome and its job's end, and records in plain JSON, the ratios are 1.01, 0.89, 0.93, 0.90, 0.93 and 0.91 one call at a time (six runs,
  sides swapped each time; CPU time 0.99 to 1.14, where it was 1.15 in one run before), and 1.05 and 0.94 with one producer. In the worker's
  profile (43 µs more for a call), 36 are Pawl's own functions, none of which has more than 8, 13 the write to the socket and 10 the collector.
  The first seconds of new processes were measured again on that evening, while an empty Node took 28 ms: 1.59 times with one producer and 1.90 with 16,
  as on 2026-11-26 (1.65 and 1.86). The rows of 32 KiB with 16 producers and of 16 producers with 512 in flight are those of the slow machine.
  A new process runs code that V8 has not compiled yet, of which Pawl has more for each call.`;

export const PEER_LIMITS = `- **pg-boss, graphile-worker: commits and rows.** A call is a row that is inserted, locked, updated and left to vacuum; a waiting
  caller is told by \`NOTIFY\`, whose commits take turns on one lock, and reads the result. Neither returns results to callers by itself.
- **DBOS: polling.** Its queue is polled by the worker and the result by the caller, at intervals that trade latency for queries.
- **Restate: its log, and HTTP.** A call goes through a log and a key-value store, and reaches the worker over HTTP/2; callers wait on
  an HTTP request.
- **With each write on disk: the disk.** Calls that come together share a flush in all of them. A call that comes alone waits for two with
  Pawl, when it is claimed and when it has ended. Redis' file grows with each, which the file system writes down, too; PostgreSQL
  writes its log into room that it made before.
- **The first 5 s against bunqueue and pg-boss: code that is not compiled yet.** With 200 B from one producer, bunqueue's processes take 227 µs for a call
  there (its server 426 more), and Pawl's 248 (Redis 102). In steady state Pawl's take 127: what is missing to 3 times is what V8's compilers take from it (see
  above, with two designs). The rows of pg-boss below 3 (32 KiB with each write on disk, 16 producers) are 2.9 to 2.96, of two starts.
- **32 KiB with each write on disk, in steady state: the disk.** Against pg-boss it is 2.85 times and against DBOS 2.74, instead of 4.59 and 3.81 where the
  disk has a second. Two files of Redis' grow by 36 KB for a call, of which the result is 33; the calls of one step share a flush. Two designs were
  tried on 2026-11-30, on a busy machine, 21 short rounds each. Texts compressed to 15 KB by the worker: 1.10 times the throughput with one producer and 1.12
  with 16, for 30 and 6 % more CPU time, and 0.57 times, for 57 % more, where the disk has a second. Texts that are sent with the script that ends their
  calls, so that they share its flush: 0.98 and 0.87 times. Neither was kept.`;

export const TRIED = `With the effect on CPU time per call in paired rounds, unless another one is named: ioredis' auto-pipelining (+24 %), BullMQ's whole text for
taking and ending inside our one script (Redis ±0 %, worker +13 %). Ends in steps of at most 16 or 8 calls, so that Redis begins while the
worker still works (16 producers: throughput −17 and −25 %: those who are told of several ends at once go on with several calls at once);
claims in steps of at most 22 or 12 instead of 16 (one producer ±3 %, replays −5 to −10 %). Producers that wait for one more round trip before
they claim, so that more calls go together (16 producers: 3.5 instead of 3.2 calls for a claim, CPU time ±0 %); results of up to 64 KiB
inside their messages (callers −17 %, Redis +37 %), or sent by their worker straight to the caller's process, which then need not fetch them (32 KiB,
16 producers: throughput −25 to −29 %, worker +65 to +83 %); waiters in an object instead of a map, so that fewer of them outlive a collection
(±0 %); V8's flags for compilers and collectors in producers (±0 %); a young generation of 1 or 4 MiB in worker and producer (one call at a time: +10 to +18 %), Node's text in large pages (±0 %); our scripts as functions that Redis keeps loaded (9 % fewer instructions for a call alone,
throughput as before); no job for a call that is pushed and ends soon (Redis −12 %, throughput +9 %, but neither Bull Board nor
BullMQ's listeners would know of it).`;
