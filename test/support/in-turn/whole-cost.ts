// Before a test file that has a process of its own: its cost is what the process took (costs.ts).
import { relative } from 'node:path'
import { isMainThread } from 'node:worker_threads'
import { writeCost } from './costs.ts'

const [, file = ''] = process.argv
// Threads have their process's arguments.
if (isMainThread) process.once('exit', () => writeCost(relative('', file)))
