/** Questions of tools to people: each with its options or a field, until it is answered. */
import { ApiError, ask, part } from './api.js';
import { element, shownText } from './dom.js';
import { drawTimes, intent, link } from './parts.js';

const LOOK_EVERY_MS = 400;

export function openQuestions(root, page) {
  const list = element('ul', { class: 'questions', 'aria-label': 'Questions of tools' });
  const title = element('h3', { hidden: true }, 'Questions');
  root.append(title, list);
  const known = new Map();
  const hand = intent();
  const sending = new Set();
  const answered = new Set();
  const looking = page.follow('/v1/questions', LOOK_EVERY_MS, ({ questions }) => {
    page.badge('approvals', 'questions', questions.length);
    const ids = new Set(questions.map(({ id }) => id));
    for (const [id, item] of known) {
      if (ids.has(id) || sending.has(id)) continue;
      // An answer that is being typed must stay, or its further letters would become keys of the page, which decide on calls.
      if (!answered.has(id) && item.querySelector('input:focus') !== null) {
        for (const button of item.querySelectorAll('button')) button.disabled = true;
        const problem = item.querySelector('.problem');
        if (problem.textContent === '')
          problem.textContent = 'This question waits no more: it was answered, or its time is over.';
        continue;
      }
      item.remove();
      known.delete(id);
      hand.moved();
    }
    // A question with a typed answer is not redrawn.
    for (const question of questions) {
      if (known.has(question.id)) continue;
      const item = itemOf(question);
      known.set(question.id, item);
      list.append(item);
    }
    title.hidden = known.size === 0;
    drawTimes(list);
  });

  function itemOf(question) {
    const { id, text, options = [], freeText, session, actorId, sessionActorId, callId, expiresAtMs } = question;
    const asker = sessionActorId === undefined ? actorId : `${sessionActorId}, in the name of ${actorId},`;
    const problem = element('p', { class: 'problem', role: 'alert' });
    const reply = async (body, what) => {
      if (sending.has(id)) return page.say('An answer to this question is on its way already');
      problem.textContent = '';
      sending.add(id);
      try {
        await ask(`/v1/questions/${part(id)}`, { method: 'POST', body });
        answered.add(id);
        page.say(what);
        void looking.now();
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        problem.textContent = error.message;
        // The message is shown apart, because the question may disappear.
        page.say(error.message);
      } finally {
        sending.delete(id);
      }
    };
    const clicked = (body, what) => (event) => {
      if (hand.isMeant(event)) void reply(body, what);
      else page.say('Nothing was answered: another question has just come into this place');
    };
    const input = element('input', {
      'aria-label': 'Answer',
      placeholder: 'Answer',
      maxlength: 4_000,
      required: true,
      autocomplete: 'off',
    });
    return element(
      'li',
      {},
      element('p', { class: 'question' }, shownText(text)),
      element(
        'p',
        { class: 'time' },
        shownText(`asked by ${asker} in ${session}, `),
        page.may('use') ? link('calls', callId, 'the call') : '',
        page.may('use') ? ', ' : '',
        element('span', { 'data-expires': expiresAtMs }),
        ' left',
      ),
      element(
        'div',
        { class: 'options' },
        ...options.map(({ value, label, description }) =>
          element(
            'button',
            { type: 'button', onclick: clicked({ answer: value }, `Answered: ${shownText(label)}`) },
            element('strong', {}, shownText(label)),
            description === undefined ? '' : element('span', {}, shownText(description)),
          ),
        ),
      ),
      element(
        'form',
        {
          class: 'answer',
          onsubmit(event) {
            event.preventDefault();
            void reply({ answer: input.value }, 'Answered');
          },
        },
        freeText ? input : '',
        freeText ? element('button', { type: 'submit', class: 'main' }, 'Answer') : '',
        element(
          'button',
          { type: 'button', class: 'quiet', onclick: clicked({ dismiss: true }, 'Dismissed') },
          'Dismiss',
        ),
      ),
      problem,
    );
  }
}
