import { setFlagsFromString } from 'node:v8'

// Imported before the code that it is for: a compiled function keeps its flags.

// V8 makes objects old from birth if those of the same line of code once lived long, as they do under the
// load of a start. A gateway's objects never outlive their call: made old, each call's held the next one's,
// until a full collection (17 % of all processor time, and a third of the memory: docs/performance.md).
setFlagsFromString('--no-allocation-site-pretenuring')

// Garbage that has grown old may be as much as what lives, some 30 MiB; V8 would wait for three times as
// much. A collection takes 13 ms, most of them on other threads. Less room than this costs calls with bodies
// of a MiB a tenth of their time and more: these count too.
setFlagsFromString('--heap-growing-percent=100')

// For threads only: the young generation of this one is made already. What they work on soon ends, and each
// would keep 32 MiB once it has been busy. A thread's resourceLimits cannot say so if the command line says a
// size.
setFlagsFromString('--max-semi-space-size=2')
