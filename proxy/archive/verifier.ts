// The thread that reads a segment back: the verifier that is in it, which gives way to calls.
import { workerData } from 'node:worker_threads'
import { VERIFIER } from '../admin/audit/pack.ts'
import { type LoopUse, paced } from './pace.ts'

/** A call waits no longer for the core that this thread has. */
const EVERY_MS = 3

// Given by whoever starts this thread.
setInterval(paced(workerData as LoopUse), EVERY_MS).unref()
await import(VERIFIER)
