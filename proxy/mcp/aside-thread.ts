// A thread that does what strangers can make long (proxy/mcp/aside/threads.ts): each of its tasks may take
// a second.
import { parentPort } from 'node:worker_threads'
import { Refusal } from '../../plugins/refusal.ts'
import type { Answer, Question, Tasks } from './aside/messages.ts'
import { bufferOf, objectIn, readParams } from './aside/read.ts'
import { takenApart } from './pinning/pinned-definition.ts'
import { changesBetween } from './pinning/tool-changes.ts'
import { judgeTool } from './pinning/tool-definition.ts'
import { judgedArguments } from './schema/arguments.ts'
import { NOT_CHECKED } from './schema/check.ts'
import { cutMessage, itemsIn, knownListIn } from './upstream/large-message.ts'
import { readMessage } from './upstream/message.ts'

const port = parentPort
if (!port) throw new Error('proxy/mcp/aside-thread.ts runs as a worker thread only')

const TASKS: Tasks = {
  readParams,
  judgeTool,
  changesBetween,
  judgeArguments: ({ digest, definition, args }) => {
    const inputSchema = () => objectIn(definition)?.inputSchema
    const value = objectIn(args)
    return value ? judgedArguments({ digest, inputSchema }, value) : { fault: NOT_CHECKED, small: false }
  },
  readMessage: ({ bytes, traces }) => cutMessage(bufferOf(bytes), traces),
  listItems: ({ bytes, ...of }) => itemsIn(readMessage(bufferOf(bytes)), of),
  knownList: ({ bytes, member }) => knownListIn(readMessage(bufferOf(bytes)), member),
  takeApart: (definition) => {
    const { headerParams, listed, object } = takenApart(Buffer.from(definition))
    return { headerParams, listed, spans: object.spans }
  },
}

port.on('message', (question: Question) => port.postMessage(answer(question)))

function answer({ task, input }: Question): Answer {
  try {
    // Proven by proxy/mcp/aside/threads.ts, which alone asks: the input is that of the task.
    const work = TASKS[task] as (input: Question['input']) => unknown
    return { kind: 'done', value: work(input) }
  } catch (error) {
    if (error instanceof Refusal) return { kind: 'refused', reason: error.reason, message: error.message }
    return { kind: 'failed', message: error instanceof Error ? error.message : String(error) }
  }
}
