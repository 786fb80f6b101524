// Preloaded into a process that is measured, by --import: counts the bytes that each of its threads allocates on
// V8's heap, and tells the sum when asked over the process's channel. What it costs is a look at the heap's size
// before and after each collection. Buffers lie outside of the heap and are not counted.
import { GCProfiler, getHeapStatistics } from 'node:v8'
import { BroadcastChannel, isMainThread } from 'node:worker_threads'

/** The answer to the message `take`: bytes since the last one. */
export interface HeapCount {
  readonly kind: 'heap'
  /** On the event loop's heap. */
  readonly loopBytes: number
  /** On the heaps of all other threads together. */
  readonly threadsBytes: number
  /** The time that the collector stopped the event loop. µs. */
  readonly pausesUs: number
}

/** The time that the other threads get to answer. They have nothing else to do by then. ms. */
const PATIENCE_MS = 300

interface Taken {
  readonly bytes: number
  readonly pausesUs: number
}

const take = counter()
// Every thread has one: what one says, all others hear.
const channel = new BroadcastChannel('count-heap')
channel.unref()

if (isMainThread) {
  process.on('message', (message) => {
    if (message === 'take') void answer()
  })
  // The channel alone must not keep the process.
  process.channel?.unref()
} else {
  channel.onmessage = ({ data }: { readonly data: unknown }) => {
    if (data === 'take') channel.postMessage(take())
  }
}

async function answer(): Promise<void> {
  const others: Taken[] = []
  channel.onmessage = ({ data }: { readonly data: unknown }) => {
    // Only the threads above speak on this channel.
    if (data !== 'take') others.push(data as Taken)
  }
  const { bytes, pausesUs } = take()
  channel.postMessage('take')
  await new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))
  const threadsBytes = others.reduce((sum, other) => sum + other.bytes, 0)
  process.send?.({ kind: 'heap', loopBytes: bytes, threadsBytes, pausesUs } satisfies HeapCount)
}

/** What a heap grew by between collections was allocated. */
function counter(): () => Taken {
  let profiler = new GCProfiler()
  profiler.start()
  let before = getHeapStatistics().used_heap_size
  return () => {
    let [bytes, pausesUs] = [0, 0]
    for (const { beforeGC, afterGC, cost } of profiler.stop().statistics) {
      bytes += beforeGC.heapStatistics.usedHeapSize - before
      before = afterGC.heapStatistics.usedHeapSize
      pausesUs += cost
    }
    bytes += getHeapStatistics().used_heap_size - before
    profiler = new GCProfiler()
    profiler.start()
    before = getHeapStatistics().used_heap_size
    return { bytes, pausesUs }
  }
}
