// What a test file of a worker has in place of tap (worker.ts): the test that stands for it. `?URL` says for which.
import { testOf } from './file-test.ts'

export default testOf(decodeURIComponent(new URL(import.meta.url).search.slice(1)))
