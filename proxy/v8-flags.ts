import { setFlagsFromString } from 'node:v8'

// Imported before what it is for: a function keeps what it was compiled with.

// V8 makes objects old from birth where those of the same line of code once lived long, as under the load of a
// start they do. Of a gateway's objects none outlives its call: made old, each call's held the next one's, until
// a full collection (17 % of all processor time, and a third of the memory: docs/performance.md).
setFlagsFromString('--no-allocation-site-pretenuring')
