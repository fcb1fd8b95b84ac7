// Goes into each page right after MiniWoB's own core.js: one episode, from a fixed seed, without its clock, whose reward
// is told to whoever started the browser. Its secret is drawn anew at every start and is nowhere but in this page.
(function () {
  const clock = Date, shift = Date.UTC(2020, 0, 15, 12) - Date.now(), day = 86400000;
  window.Date = new Proxy(clock, {
    construct: (kind, given) => given.length ? new kind(...given) : new kind(clock.now() + shift),
    apply: () => String(new clock(clock.now() + shift)),
    get: (kind, name) => name === 'now' ? () => clock.now() + shift : kind[name],
  });
  const say = (what) => console.log('@SECRET@ ' + JSON.stringify({page: '@PAGE@', ...what}).replace(/[^ -~]/g,
    (letter) => '\\u' + letter.charCodeAt(0).toString(16).padStart(4, '0')));
  window.addEventListener('error', (event) => say({error: event.message || 'a file does not load'}), true);

  const images = @IMAGES@, set = Element.prototype.setAttribute;  // those whose names a page puts together while it runs
  Element.prototype.setAttribute = function (name, value) {
    set.call(this, name, name === 'src' ? images[value] || value : value);
  };

  let begun = false;
  core.startEpisode = function () {  // called when the page is loaded, and at the end of an episode
    if (begun) {
      core.cover_div.textContent = 'DONE';
      core.cover_div.style.display = 'block';
      return;
    }
    begun = true;
    core.createDisplay();
    for (const shown of document.querySelectorAll('#reward-display, #click-canvas')) shown.style.display = 'none';
    core.cover_div = document.createElement('div');
    core.cover_div.id = 'sync-task-cover';
    document.body.appendChild(core.cover_div);
    core.EPISODE_MAX_TIME = day;
    Math.seedrandom('@SEED@');
    core.startEpisodeReal();
    const asked = core.getUtterance();
    say({asked: typeof asked === 'string' ? asked : asked.utterance});
    document.title = '@TITLE@';
  };
  const end = core.endEpisode;
  core.endEpisode = function (...given) {
    const before = WOB_EPISODE_ID;
    end.apply(core, given);
    if (before === 0 && WOB_EPISODE_ID === 1) say({reward: WOB_RAW_REWARD_GLOBAL});
  };
  Math.seedrandom('@SEED@');
})();
