import t from 'tap'
import { tokenRequest } from '../../../proxy/auth/token-request.ts'
import { holdOf } from '../../support/loop-hold.ts'
import { arrival } from '../../support/plugins/arrival.ts'
import { refused } from '../../support/refused.ts'

const read = async (text: string) =>
  tokenRequest.admit(
    arrival({
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      readBody: () => Promise.resolve(Buffer.from(text)),
    }),
  )

await t.test('row 23 RFC 6749 §3.2 a form of many parameters takes no longer than its length', async (t) => {
  const many = Array.from({ length: 13_000 }, (_, i) => `${i.toString(36)}=`).join('&')
  const { worstMs } = await holdOf(async () => {
    await t.rejects(() => read(many), refused('token_request_invalid', { message: 'grant_type is missing.' }))
    await t.rejects(
      () => read(`${many}&1=`),
      refused('token_request_invalid', { message: 'A parameter was sent twice.' }),
    )
  })
  // Looking through all of them for each took half a second.
  t.ok(worstMs < 150, `${worstMs} ms`)
  const { tokenRequest: granted } = await read(`grant_type=client_credentials&${many}`)
  t.equal(granted.form, 'oauth', 'and unknown ones are ignored')
})
