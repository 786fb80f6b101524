import { PassThrough } from 'node:stream'
import t from 'tap'
import {
  type Frame,
  readFrames,
  sendFrame,
  sendValue,
  valueIn,
} from '../../../../db/sqlite/workers/frames.ts'

t.test('frames arrive whole and in order, however their bytes come', async (t) => {
  const sent = new PassThrough()
  for (const id of [1, 2, 3])
    sendValue(sent, 7, id, { text: 'é'.repeat(id * 10_000), bytes: new Uint8Array([id]) })
  sendFrame(sent, 8, 4, new Uint8Array())
  const bytes = sent.read() as Buffer
  for (const size of [1, 5, 9, 10, 4_096, bytes.length]) {
    const received = new PassThrough()
    const heard: [kind: number, id: number, length: number][] = []
    readFrames(received, (frame: Frame) => {
      heard.push([frame.kind, frame.id, frame.kind === 7 ? valueIn<{ text: string }>(frame).text.length : 0])
    })
    for (let at = 0; at < bytes.length; at += size) received.write(bytes.subarray(at, at + size))
    await new Promise((resolve) => received.end(resolve).resume().once('end', resolve))
    const all = [1, 2, 3].map((id) => [7, id, id * 10_000])
    t.same(heard, [...all, [8, 4, 0]], `${size} bytes at a time`)
  }
})

t.test('a frame that is too long ends the channel before it is held', async (t) => {
  const received = new PassThrough()
  readFrames(received, () => t.fail('nothing is whole'))
  const head = Buffer.alloc(9)
  head.writeUInt32BE(2 ** 31, 0)
  const closed = new Promise<Error>((resolve) => received.once('error', resolve))
  received.write(head)
  t.match((await closed).message, 'a frame of')
})
