import t from 'tap'
import {
  newTraceId,
  parseTraceparent,
  printTraceparent,
  sampleTrace,
} from '../../../../proxy/telemetry/otlp/context.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const SPAN = '00f067aa0ba902b7'

t.test('a traceparent is read as W3C Trace Context says', (t) => {
  const parsed = { traceId: TRACE, spanId: SPAN, flags: 1 }
  t.same(parseTraceparent(`00-${TRACE}-${SPAN}-01`), parsed)
  t.same(
    parseTraceparent(`cc-${TRACE}-${SPAN}-01-what-the-future-will-be`),
    parsed,
    'a later version may be longer',
  )
  for (const wrong of [
    ...[undefined, 7, '', `00-${TRACE}-${SPAN}`, `00-${TRACE}-${SPAN}-01-`, `00-${TRACE}-${SPAN}-01-more`],
    ...[`ff-${TRACE}-${SPAN}-01`, `00-${TRACE.toUpperCase()}-${SPAN}-01`, `00-${'0'.repeat(32)}-${SPAN}-01`],
    ...[
      `00-${TRACE}-${'0'.repeat(16)}-01`,
      ` 00-${TRACE}-${SPAN}-01`,
      `cc-${TRACE}-${SPAN}-01-${'x'.repeat(600)}`,
    ],
  ])
    t.equal(parseTraceparent(wrong), null, String(wrong).slice(0, 80))
  t.equal(printTraceparent(TRACE, SPAN, 0), `00-${TRACE}-${SPAN}-00`)
  t.end()
})

t.test('parent: as the caller says, and all without one; a number: that part of the traces', (t) => {
  const parent = (flags: number) => ({ traceId: TRACE, spanId: SPAN, flags })
  t.match(sampleTrace('parent', TRACE, parent(0)), { isSampled: false, flags: 0 })
  t.match(
    sampleTrace('parent', TRACE, parent(3)),
    { isSampled: true, flags: 3 },
    'a random id stays said to be one',
  )
  t.match(sampleTrace('parent', TRACE, null), { isSampled: true, flags: 1 })
  t.match(sampleTrace('all', TRACE, parent(0)), { isSampled: true, flags: 1 })
  t.match(sampleTrace(0.5, `${'0'.repeat(19)}7${'f'.repeat(12)}`, parent(0)), { isSampled: true })
  t.match(sampleTrace(0.5, `${'0'.repeat(19)}8${'0'.repeat(12)}`, parent(1)), { isSampled: false, flags: 0 })
  const taken = Array.from({ length: 4_000 }, () => newTraceId(16)).filter(
    (id) => sampleTrace(0.25, id, null).isSampled,
  )
  t.ok(taken.length > 800 && taken.length < 1_200, `${taken.length} of 4,000`)
  t.end()
})
